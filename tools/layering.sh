#!/usr/bin/env bash
# The pure cores stay pure: they import neither the NATS and ClickHouse layers
# nor anything of cmd, and nothing outside cmd and test imports cmd.
set -euo pipefail
mod=$(go list -m)
fail=0
while read -r pkg imports; do
  rel=${pkg#"$mod"/}
  for i in $imports; do
    case "$i" in "$mod"/*) i=${i#"$mod"/} ;; *) continue ;; esac
    case "$rel" in
      events*|schemas*)               bad='^(admission|correlation|evidence|compliance|streams|storage|client|cmd)(/|$)' ;;
      admission*|correlation*|evidence*) bad='^(compliance|streams|storage|client|cmd)(/|$)' ;;
      compliance*)                    bad='^(streams|storage|client|cmd)(/|$)' ;;
      streams*|storage*)              bad='^(admission|correlation|evidence|compliance|client|cmd|schemas)(/|$)' ;;
      client*)                        bad='^(storage|correlation|compliance|cmd)(/|$)' ;;
      *) continue ;;
    esac
    if [[ $i =~ $bad ]]; then
      echo "layering: $rel must not import $i (see docs/architecture.md)" >&2
      fail=1
    fi
  done
done < <(go list -f '{{.ImportPath}} {{join .Imports " "}}' ./...)
exit $fail
