#!/usr/bin/env bash
# The pure cores stay pure: they import neither the NATS and ClickHouse layers
# nor anything of cmd or internal, and nothing outside cmd, internal and test
# imports those. Among the commands: services know no command, what the commands
# share knows none of them, and the benchmarks are in no other program.
set -euo pipefail
mod=$(go list -m)
fail=0
cli=cmd/internal/cli
bench=cmd/internal/bench
pipeline=cmd/internal/pipeline
commands="$cli/(run|decide|correlate|inspect|verify|export|admin)"
while read -r pkg imports; do
  rel=${pkg#"$mod"/}
  for i in $imports; do
    case "$i" in "$mod"/*) i=${i#"$mod"/} ;; *) continue ;; esac
    case "$rel" in
      events*|schemas*)               bad='^(admission|correlation|evidence|streams|storage|client|cmd|internal)(/|$)' ;;
      admission*|correlation*|evidence*) bad='^(streams|storage|client|cmd|internal)(/|$)' ;;
      streams*|storage*)              bad='^(admission|correlation|evidence|client|cmd|internal|schemas)(/|$)' ;;
      client*)                        bad='^(storage|correlation|cmd|internal)(/|$)' ;;
      internal/evidencereader*)       bad='^(admission|correlation|streams|client|cmd)(/|$)' ;;
      "$cli"/ui)                      bad='^(admission|correlation|evidence|streams|storage|client|cmd|internal)(/|$)' ;;
      "$cli"/ui/uitest)               bad="^(internal|$bench|$cli/(system|proof|target|textdiff)|$commands)(/|$)" ;;
      "$cli"/target|"$cli"/textdiff)  bad="^($bench|$pipeline|$cli|.*/(admitter|correlator|auditor))(/|$)" ;;
      "$cli"/system|"$cli"/proof)     bad="^($bench|$commands)(/|$)" ;;
      "$cli"/*|cmd/countersign)       bad="^$bench(/|$)" ;;
      "$bench"|cmd/countersign-bench)  continue ;;
      "$pipeline"*)                   bad="^($bench|$cli/(ui|system|proof|textdiff)|$commands)(/|$)" ;;
      cmd/*)                          bad="^($bench|$cli|$pipeline|internal)(/|$)" ;;
      *)                              bad='^(cmd|internal)(/|$)' ;;
    esac
    if [[ $i =~ $bad ]]; then
      echo "layering: $rel must not import $i (see docs/architecture.md)" >&2
      fail=1
    fi
  done
done < <(go list -f '{{.ImportPath}} {{join .Imports " "}}' ./...)
exit $fail
