#!/usr/bin/env bash
# Drop-in suite: the options of the benchmark's wrapper, handed to `kvspill suite`.
set -u

usage() {
    cat <<'TEXT'
Usage: ./kv-cache-wrapper.sh [options] [model]

  -m MODEL    model of the scenarios (default llama3.1-8b; `kvspill models` lists them)
  -t SECONDS  duration of the tier scenarios (default 120)
  -s SECONDS  duration of storage-saturation (default 180)
  -r SECONDS  duration of production (default 180)
  -a SECONDS  duration of the autoscaling scenarios (default 300)
  -w LIST     scenarios to run, separated by commas (default: the nine; `all` adds the others):
              gpu-only,cpu-only,storage-only,gpu-cpu,cpu-storage,gpu-cpu-storage,
              storage-saturation,production,autoscale,
              capacity-autoscale,mlperf_submission,rag,kitchen-sink,engines
  -u USERS    users of the tier scenarios (default: derived from the machine)
  -U USERS    users of storage-saturation (default: derived from the machine)
  -R          add retrieval (RAG) to the scenarios
  -D DOCS     documents to ingest with -R, or in rag and kitchen-sink (default 10)
  -h          this help

Whatever follows -- is handed on, as in: ./kv-cache-wrapper.sh -w production -- --quick
TEXT
}

refuse() {
    echo "kv-cache-wrapper.sh: error: $1" >&2
    exit 2
}

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
model=""
arguments=()
while getopts ":m:t:s:r:a:w:u:U:RD:h" option; do
    case "$option" in
        m)
            [ -n "$OPTARG" ] || refuse "-m '': is no model; name one, or leave -m out"
            model=$OPTARG
            ;;
        t) arguments+=(--tier-seconds "$OPTARG") ;;
        s) arguments+=(--saturation-seconds "$OPTARG") ;;
        r) arguments+=(--production-seconds "$OPTARG") ;;
        a) arguments+=(--autoscale-seconds "$OPTARG") ;;
        w) arguments+=(--workloads "$OPTARG") ;;
        u) arguments+=(--users "$OPTARG") ;;
        U) arguments+=(--high-users "$OPTARG") ;;
        R) arguments+=(--rag) ;;
        D) arguments+=(--rag-num-docs "$OPTARG") ;;
        h) usage; exit 0 ;;
        :) refuse "-$OPTARG needs a value; -h shows all options" ;;
        *) refuse "-$OPTARG: unknown option; -h shows all options" ;;
    esac
done
shift $((OPTIND - 1))

if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    [ -n "$1" ] || refuse "'': an empty word is no model; name one, or leave it out"
    [ -z "$model" ] || refuse "model given twice, -m $model and $1; leave one out"
    model=$1
    shift
    if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
        refuse "$1: only one model at a time, and $model came first; scenarios go to -w"
    fi
    case "${1:-}" in
        -[mtsrawuURDh]*) refuse "$1: options come before the model; write it before $model, or use -m $model" ;;
    esac
fi
if [ $# -gt 0 ] && [ "$1" = "--" ]; then
    shift
fi
if [ -n "$model" ]; then
    arguments+=(--model "$model")
fi

for python in "${PYTHON:-}" "$here/.venv/bin/python" python3; do
    if [ -n "$python" ] && command -v "$python" >/dev/null 2>&1; then
        PYTHONPATH="$here/src${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m kvspill suite \
            ${arguments[@]+"${arguments[@]}"} "$@"
    fi
done
echo "kv-cache-wrapper.sh: error: python3 not found; install Python 3.11 or newer" >&2
exit 1
