#!/bin/bash
# healthy http PORT: GET /healthz on loopback answers 200
# healthy nats PORT: a NATS server greets
# healthy tcp PORT:  somebody listens
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/$2"
line=""
case "$1" in
  tcp) exit 0 ;;
  nats) read -r -t 5 line <&3; [[ $line == INFO* ]] ;;
  http)
    printf 'GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
    read -r -t 5 line <&3
    [[ $line == "HTTP/1."?" 200 "* ]]
    ;;
  *) exit 2 ;;
esac
