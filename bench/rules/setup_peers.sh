#!/bin/sh
# Makes the rule engines' environments under DIR (default: .bench-venvs); ready ones are left alone.
# Each has its own: Python ones a venv, json-rules-engine a folder of node modules. durable_rules compiles C and links to
# nothing else. One that does not install is left out, with a word.
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

make_node() {
    folder=$dir/$1
    shift
    if [ -f "$folder/.ready" ]; then
        return
    fi
    if ! command -v npm >/dev/null; then
        echo "setup_peers: npm is not on PATH; the row of $folder is left out" >&2
        return
    fi
    echo "setup_peers: $folder" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    if npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "$@" >&2; then
        touch "$folder/.ready"
    else
        echo "setup_peers: $folder could not be installed; its row is left out" >&2
    fi
}

mkdir -p "$dir"
# its setup.py needs setuptools, and its imports of the interpreter's headers a compiler
make_venv durable-rules "setuptools<81" "durable_rules>=2.0.28,<3"
make_venv rule-engine "rule-engine>=4.5,<5"
make_venv business-rules "business-rules>=1.1,<2"
make_node json-rules-engine "json-rules-engine@^7"
