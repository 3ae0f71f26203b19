#!/bin/sh
# Makes the peers' virtual environments under DIR (default: .bench-venvs): main, arq, saq, streaq.
# They are apart because the peers' pins on redis-py conflict. Ready ones are left alone; remove DIR to renew them.
# uvloop is left out on purpose: taskiq would pick it up by itself, the others would not.
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
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    touch "$venv/.ready"
}

mkdir -p "$dir"
make_venv main "celery[redis]>=5.6,<6" "rq>=2.6,<3" "dramatiq[redis]>=2.0,<3" "taskiq>=0.12,<1" \
    "taskiq-redis>=1.2,<2" "huey>=3.0,<4" "redis>=6,<9" "hiredis>=3.2,<4"
make_venv arq "arq>=0.26,<1" "hiredis>=3.2,<4"
# saq imports typing_extensions on Python 3.11 without asking for it
make_venv saq "saq[redis,hiredis]>=0.26,<1" "typing_extensions>=4,<5"
make_venv streaq "streaq>=7,<8" "hiredis>=3.2,<4"
