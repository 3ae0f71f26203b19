#!/usr/bin/env bash
# Creates the virtual environment $1 with a Python of 3.11 or later and installs the project into it, editable, with [dev].
# PYTHON names the interpreter to use. Keeps an environment that still works.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local name
  for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if is_recent "$name"; then
      command -v "$name"
      return
    fi
  done
  return 1
}

if ! { [ -x "$venv/bin/python" ] && is_recent "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
  python=$(find_python) || die "Python 3.11 or later is needed; ${PYTHON:-python3} is $("${PYTHON:-python3}" -V 2>/dev/null || echo missing)." \
    "Install it (Debian 12 or later: apt-get install python3 python3-venv) or name one: make setup PYTHON=/path/to/python3"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      echo "installing python3-venv" >&2
      export DEBIAN_FRONTEND=noninteractive
      apt-get update -qq </dev/null
      apt-get install -y -qq --no-install-recommends python3-venv </dev/null >/dev/null
      # An interpreter beside Debian's default one needs the package of its own version.
      "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        apt-get install -y -qq --no-install-recommends "$version" </dev/null >/dev/null || true
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
      die "$python cannot create virtual environments: its venv module is missing." \
        "Debian: sudo apt-get install python3-venv   (or $version)"
  fi
  echo "creating $venv with $("$python" -V)" >&2
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi

echo "installing tradewind and its development tools into $venv" >&2
"$venv/bin/python" -m pip install --quiet --editable '.[dev]' </dev/null
