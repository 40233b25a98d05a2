#!/usr/bin/env bash
# Checks what each part of the repository links against tools/layering.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk -v mod="$(go list -m)/" '
function trim(s) { gsub(/^ +| +$/, "", s); return s }
function part_of(path,   p) { # the longest part that holds the package
  for (p = path; ; ) {
    if (p in ours) return p
    if (!match(p, /\/[^\/]*$/)) return ""
    p = substr(p, 1, RSTART - 1)
  }
}
function library(path) {
  if (path ~ /nats-io\/nats-server/) return "nats-server"
  if (path ~ /nats-io\/nats.go/) return "nats.go"
  if (path ~ /ClickHouse/) return "clickhouse"
  if (path ~ /ebitengine\/purego$/) return "libchdb"
  if (path ~ /cloudevents/) return "cloudevents"
  if (path ~ /santhosh-tekuri\/jsonschema/) return "jsonschema"
  if (path ~ /^cel.dev/) return "cel"
  return ""
}
function allowed(list, name, up) {
  up = name; sub(/\/.*/, "/*", up)
  return index(" " list " ", " " name " ") || index(" " list " ", " " up " ") || list == "*"
}
function refuse(what) {
  if (!(what in told)) print "layering: " what " (tools/layering.txt)" > "/dev/stderr"
  told[what]; bad = 1
}
FILENAME != "-" {
  if ($0 ~ /^#/ || NF == 0) next
  split($0, f, "|"); part = trim(f[1])
  if (part in ours) refuse(part " has two rows")
  ours[part] = trim(f[2]); libs[part] = trim(f[3])
  next
}
index($1, mod) == 1 {
  from = part_of(substr($1, length(mod) + 1))
  if (from == "") { refuse($1 " is in no part"); next }
  for (i = 2; i <= NF; i++) {
    if (index($i, mod) == 1) {
      to = part_of(substr($i, length(mod) + 1))
      if (to != from && !allowed(ours[from], to)) refuse(from " links " to ", by " $1)
    } else if ((l = library($i)) != "" && !allowed(libs[from], l)) refuse(from " links the library " l ", by " $1)
  }
}
END { exit bad }' tools/layering.txt -
