#!/usr/bin/env bash
# Installs what the whole test suite uses beside Python packages. Tests whose tool is missing are skipped.
set -euo pipefail

packages=()
command -v mpirun >/dev/null || packages+=(openmpi-bin)
command -v fio >/dev/null || packages+=(fio)
command -v strace >/dev/null || packages+=(strace)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || packages+=(chromium)

if [ ${#packages[@]} -eq 0 ]; then
    echo "test tools: all there"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "test tools: missing ${packages[*]}; install them with this system's package manager" >&2
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "test tools: missing ${packages[*]}; run this script as root to install them" >&2
        exit 0
    fi
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${packages[@]}"
