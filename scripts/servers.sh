#!/usr/bin/env bash
# Makes sure that the servers which the tests start are installed: all of them, or the packages named as arguments.
# As root on Debian it installs what is missing and starts nothing; otherwise it says what to install.
# Something still missing is an error with CI=true; at home the tests that need it skip.
set -euo pipefail
packages=(redis-server rabbitmq-server influxdb postgresql mosquitto chromium libmodbus5)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

is_installed() {
  case $1 in
    influxdb) command -v influxd >/dev/null ;;
    postgresql) command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ;;
    libmodbus5) ldconfig -p | grep -q 'libmodbus\.so\.5' ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

find_missing() {
  missing=()
  local package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
}

# Debian starts a server as soon as it is installed, unless this file says no.
policy=/usr/sbin/policy-rc.d
log=
forbid_starts() {
  # A saved one that is still there is left from a run that was killed: it is the real one.
  [ ! -e "$policy" ] || [ -e "$policy.tradewind-saved" ] || mv "$policy" "$policy.tradewind-saved"
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}
restore_starts() {
  rm -f "$policy" "$log"
  [ ! -e "$policy.tradewind-saved" ] || mv "$policy.tradewind-saved" "$policy"
}

install_missing() {
  echo "installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  trap restore_starts EXIT
  trap 'exit 130' INT TERM
  forbid_starts
  {
    apt-get -o DPkg::Lock::Timeout=300 update -q &&
      apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold \
        install -y -q --no-install-recommends "${missing[@]}"
  } </dev/null >"$log" 2>&1 || {
    echo "apt-get failed; its last lines:" >&2
    tail -n 20 "$log" >&2
  }
}

[ $# -gt 0 ] || set -- "${packages[@]}"
find_missing "$@"
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  install_missing
  find_missing "$@"
fi
if [ ${#missing[@]} -gt 0 ]; then
  echo "missing servers: ${missing[*]}" >&2
  echo "  Debian: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  if [ "${CI:-}" = true ]; then
    exit 1
  fi
  echo "  The tests that need them will skip." >&2
fi
