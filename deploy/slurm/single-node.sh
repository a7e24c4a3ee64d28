#!/usr/bin/env bash
# Starts or stops a one-node SLURM whose every file is in one folder and whose ports are on
# loopback. For tests only; on Debian: apt-get install --no-install-recommends slurm-wlm munge
#
#   export SLURM_CONF=$(deploy/slurm/single-node.sh start /tmp/slurm)   # then sbatch, squeue, ...
#   deploy/slurm/single-node.sh stop /tmp/slurm
set -euo pipefail
PATH=$PATH:/usr/sbin

usage() {
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Seconds pass, not attempts: a loaded machine needs minutes where a quiet one needs a second.
wait_until() {
  local limit=$1 deadline
  shift
  deadline=$((SECONDS + limit))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)); then
      echo "single-node.sh: not true after ${limit} s: $*; see the logs in $dir" >&2
      return 1
    fi
    sleep 0.2
  done
}

node_idle() {
  [[ $(sinfo --noheader --format=%t 2>/dev/null) == idle ]]
}

write_configuration() {
  sed -e "s|@DIR@|$dir|g" -e "s|@HOST@|$(hostname -s)|g" -e "s|@USER@|$(id -un)|g" \
    -e "s|@CTLD_PORT@|$(free_port)|g" -e "s|@SLURMD_PORT@|$(free_port)|g" \
    "$(dirname "${BASH_SOURCE[0]}")/slurm.conf" >"$dir/slurm.conf"
}

start() {
  local program
  for program in munged slurmctld slurmd sinfo; do
    command -v "$program" >/dev/null || {
      echo "single-node.sh: no $program; on Debian: apt-get install --no-install-recommends slurm-wlm munge" >&2
      exit 1
    }
  done
  mkdir -p "$dir/state" "$dir/spool"
  # munged refuses a folder that others may write to.
  chmod 755 "$dir"
  write_configuration
  export SLURM_CONF=$dir/slurm.conf
  (umask 077 && dd if=/dev/urandom of="$dir/munge.key" bs=1024 count=1 status=none)
  # --force: a temporary folder has a world-writable parent, which munged otherwise refuses.
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munged.seed" \
    >"$dir/munged.out" 2>&1
  slurmctld >"$dir/slurmctld.out" 2>&1
  slurmd -N "$(hostname -s)" >"$dir/slurmd.out" 2>&1
  wait_until 60 node_idle
  echo "$SLURM_CONF"
}

stop() {
  local name pid
  for name in slurmd slurmctld munged; do
    [[ -s $dir/$name.pid ]] || continue
    pid=$(<"$dir/$name.pid")
    kill "$pid" 2>/dev/null || continue
    wait_until 15 bash -c "! kill -0 $pid" || kill -KILL "$pid" 2>/dev/null || true
  done
}

[[ $# -eq 2 ]] || usage
action=$1
dir=$(realpath -m "$2")
case $action in
  start | stop) "$action" ;;
  *) usage ;;
esac
