"""How much of a real GPU's own time goes over PCIe, in the sentences about what sets the pace."""

from kvspill.measure.recorder import Recorder
from kvspill.records import Tier, Verb
from kvspill.report.html.verdicts import verdict_of
from kvspill.report.short import _figures
from kvspill.result.bottleneck import Binds, bottleneck
from kvspill.result.link import link_sentence
from kvspill.result.schema import Result
from unit.measure.rows import ns, op, request
from unit.result.sample import built, empty_recorder, facts, tier


def on_gpu(**seconds: float) -> Result:
    """A run whose storage I/O is in the GPU tier alone."""
    recorder: Recorder = empty_recorder()
    recorder.cache_call(ns(11), ns(13))
    recorder.request(request(14, intended=11, started=11, storage=2, generation=0.1, tokens=100))
    recorder.op(op(13, started=11, tier=Tier.GPU, verb=Verb.READ, nbytes=1 << 30))
    counters = {f"{way}_device_seconds": value for way, value in seconds.items()}
    card = tier(Tier.GPU, backend="gpu", counters=counters)
    return built(recorder, facts(tiers=(card, tier(Tier.STORAGE))))


def test_copies_over_pcie_are_named_where_they_take_most_of_the_gpus_time() -> None:
    found = bottleneck(on_gpu(hbm_read=0.1, pcie_in=0.5, pcie_load=0.1, pcie_out=0.3))
    assert found.binds is Binds.MEMORY
    assert "90% of the GPU's own time is copies over PCIe" in found.sentence
    assert "--gpu-mem-gb" in found.helps
    assert (
        "PCIe takes 90% of the GPU's own time (hits inside its memory 0.10 s, puts 0.50 s, "
        "loads from storage 0.10 s, demotions 0.30 s)." in found.lines
    )


def test_where_hits_take_the_time_the_link_is_no_cause() -> None:
    found = bottleneck(on_gpu(hbm_read=0.9, pcie_in=0.1, pcie_load=0.0, pcie_out=0.0))
    assert "PCIe" not in found.sentence
    assert any(line.startswith("PCIe takes 10% of the GPU's own time") for line in found.lines)


def test_a_modelled_tier_has_no_link() -> None:
    found = bottleneck(on_gpu())
    assert not any("PCIe" in line for line in (found.sentence, *found.lines))


def test_the_short_summary_and_the_page_say_the_links_share() -> None:
    result = on_gpu(hbm_read=0.1, pcie_in=0.9)
    words = dict(_figures(result))
    assert words["GPU tier"].startswith("102 MiB/s read, 0 B/s written. PCIe takes 90% of the GPU's own")
    assert dict(verdict_of(result).lines)["GPU link"] == link_sentence(result)
    modelled = on_gpu()
    assert "GPU tier" not in dict(_figures(modelled))
    assert "GPU link" not in dict(verdict_of(modelled).lines)
