#!/bin/sh
# Makes the environments of the InfluxDB clients under DIR (default: .bench-venvs); ready ones are left alone.
# Telegraf is in none of the Python, npm and Debian registries, so it is not among them. A client that does not install
# is left out, with a word.
set -eu
dir=${1:-.bench-venvs}
python=${PYTHON:-python3.11}

make_venv() {
    venv=$dir/$1
    shift
    if [ -f "$venv/.ready" ]; then
        return
    fi
    echo "setup_peers: $venv" >&2
    "$python" -m venv --clear "$venv"
    if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; then
        touch "$venv/.ready"
    else
        echo "setup_peers: $venv could not be installed; its row is left out" >&2
    fi
}

mkdir -p "$dir"
make_venv influxdb-client "influxdb-client>=1.50,<2"
make_venv influxdb "influxdb>=5.3,<6"
