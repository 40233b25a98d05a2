#!/bin/sh
# with-secrets NAME=FILE ... -- COMMAND ...
#
# Runs COMMAND with each NAME in its environment, read from FILE, so that no
# secret stands in a container's configuration or on a command line.
set -eu
while [ "${1?no -- before the command}" != "--" ]; do
  value=$(cat -- "${1#*=}")
  [ -n "$value" ] || { echo "with-secrets: ${1#*=} is empty" >&2; exit 1; }
  export "${1%%=*}=$value"
  shift
done
shift
exec "$@"
