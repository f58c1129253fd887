#!/bin/sh
# Writes and removes the records of dns-01 by dynamic updates (RFC 2136) with nsupdate of BIND, for
# `tls_routes.acme.dns.exec` of a tunnel server.
#
# The key lies in a file that the user of the daemon may read:
#   tsig-keygen tunnel > /etc/tunnel/dns.key
# The zone permits it to change these records alone (named.conf):
#   update-policy { grant tunnel name _acme-challenge.home.example.com. TXT; };
set -eu

action=$1 # present, cleanup
record=$2 # _acme-challenge.home.example.com.
value=$3  # the text of the record

key=${DNS_KEY:-${CREDENTIALS_DIRECTORY:-/etc/tunnel}/dns.key}
server=${DNS_SERVER:-127.0.0.1}
port=${DNS_PORT:-53}

case $action in
present) change="update add $record 60 IN TXT \"$value\"" ;;
cleanup) change="update delete $record IN TXT \"$value\"" ;;
*)
    echo "unknown action $action" >&2
    exit 2
    ;;
esac

nsupdate -k "$key" -t 20 <<END
server $server $port
$change
send
END
