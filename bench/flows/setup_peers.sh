#!/bin/sh
# Makes the flow engines' virtual environments under DIR (default: .bench-venvs); ready ones are left alone.
# streaq is the same one that bench/setup_peers.sh makes. An engine that does not install is left out, with a word.
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

# Prefect 3.9.0 asks for a certifi that was released after it; where the index does not have it yet, that one floor
# is dropped. Only loopback HTTP is used.
make_prefect() {
    venv=$dir/prefect
    if [ -f "$venv/.ready" ]; then
        return
    fi
    make_venv prefect "prefect>=3.9,<4" 2>"$dir/prefect.log" || true
    if [ -f "$venv/.ready" ]; then
        return
    fi
    if ! grep -q "certifi" "$dir/prefect.log"; then
        cat "$dir/prefect.log" >&2
        return
    fi
    echo "setup_peers: $venv without the floor on certifi" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "prefect>=3.9,<4"
    "$venv/bin/python" -c "
from importlib.metadata import requires
wanted = [r for r in requires('prefect') or [] if 'extra ==' not in r]
print('\n'.join('certifi' if r.startswith('certifi') else r for r in wanted))" >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$venv/requirements.txt"
    touch "$venv/.ready"
}

mkdir -p "$dir"
make_venv canvas "celery[redis]>=5.6,<6" "taskiq>=0.12,<1" "taskiq-redis>=1.2,<2" "taskiq-pipelines>=0.1,<1" \
    "redis>=6,<9" "hiredis>=3.2,<4"
make_venv streaq "streaq>=7,<8" "hiredis>=3.2,<4"
make_venv hamilton "sf-hamilton>=1.80,<2"
make_venv luigi "luigi>=3.6,<4"
make_venv dagster "dagster>=1.12,<2"
make_prefect
