#!/bin/sh
# make-secrets.sh DIR
#
# Makes, in DIR and readable by its owner only, a random password for every NATS
# and ClickHouse user, the forms in which they are needed, environment files
# for the systemd units, and the key of the gateway's AAEP manifest. A user of your
# own, such as another tenant's, gets what the others get if there is a file
# nats-USER in DIR, which may be empty. What is there already is left as it is.
# A name with a dot, such as nats-USER.old, is no user. The other key files are
# made by `countersign provision --keys DIR`; gateway.env gets the public one
# when this script finds it in DIR.
set -eu
umask 077
dir=${1:?usage: make-secrets.sh DIR}
mkdir -p "$dir"

# A letter first: a NATS server reads digits alone as a number.
random() { printf p; od -An -tx1 -N24 /dev/urandom | tr -d ' \n'; }
put() { [ -s "$dir/$1" ] || printf '%s\n' "$2" >"$dir/$1"; }
get() { cat "$dir/$1"; }

users="provisioner admitter correlator auditor custodian operator witness acme-runtime acme-subscriber acme-reviewer acme-gateway"
for file in "$dir"/nats-*; do
  user=${file##*/nats-}
  case $user in *[!A-Za-z0-9_-]*) continue ;; esac # a copy such as .old; the pattern itself if there is none
  chmod 600 "$file" # one that the operator made
  case " $users " in *" $user "*) ;; *) users="$users $user" ;; esac
done
for user in $users; do
  put "nats-$user" "$(random)"
done
for user in owner readonly; do
  put "clickhouse-$user" "$(random)"
  put "clickhouse-$user.sha256" "$(printf %s "$(get "clickhouse-$user")" | sha256sum | cut -d' ' -f1)"
done
put clickhouse.dsn "clickhouse://countersign:$(get clickhouse-owner)@127.0.0.1:9000/countersign"
put clickhouse-readonly.dsn "clickhouse://countersign_ro:$(get clickhouse-readonly)@127.0.0.1:9000/countersign"

put nats.env "$(for user in $users; do
  echo "COUNTERSIGN_PW_$(echo "$user" | tr 'a-z-' 'A-Z_')=$(get "nats-$user")"
done)"
put clickhouse.env "COUNTERSIGN_CLICKHOUSE_OWNER_SHA256=$(get clickhouse-owner.sha256)
COUNTERSIGN_CLICKHOUSE_READONLY_SHA256=$(get clickhouse-readonly.sha256)"
put provision.env "NATS_PASSWORD=$(get nats-provisioner)"
for service in admitter correlator; do
  put "$service.env" "COUNTERSIGN_NATS_PASSWORD=$(get "nats-$service")"
done
for user in $users; do
  tenant=${user%-gateway} env=gateway.env
  [ "$tenant" != "$user" ] || continue
  [ "$tenant" = acme ] || env=gateway-$tenant.env
  put "$env" "COUNTERSIGN_NATS_PASSWORD=$(get "nats-$user")"
  if [ -s "$dir/checkpoint.pub" ] && ! grep -q '^COUNTERSIGN_PUBLIC_KEY=' "$dir/$env"; then
    printf 'COUNTERSIGN_PUBLIC_KEY=%s\n' "$(get checkpoint.pub)" >>"$dir/$env"
  fi
done
put manifest.key "$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')"
put auditor.env "COUNTERSIGN_NATS_PASSWORD=$(get nats-auditor)
COUNTERSIGN_CUSTODIAN_PASSWORD=$(get nats-custodian)
COUNTERSIGN_CLICKHOUSE=$(get clickhouse.dsn)"
