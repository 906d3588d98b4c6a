#!/usr/bin/env bash
# server_docs.sh PROGRAM SOURCE: types what docs/server.md tells a user of the server to type, in the current
# folder. Every "qwen-image serve" is started and stopped, on a free port; all else is sent to one that runs beside it.
set -euo pipefail
program=$1 source=$2
address=http://127.0.0.1:8080 # as the documents have it
server=
trap '[ -z "$server" ] || kill "$server"' EXIT # only if something failed

# Lines of the blocks that are to be typed into a shell.
typed_lines() { awk '/^```/ { plain = !inside && $0 == "```"; inside = !inside; next } plain' "$1"; }

# start LINE: a server, as in the document but for its port and folder. Sets `server` and `url`.
start() {
  local command ready
  command=$(sed -E "s/ +#.*//; s/ --(port|jobs-dir) [^ ]+//g; s|build/release/qwen-image|exec '$program'|" <<<"$1")
  rm -f ready
  mkfifo ready
  (eval "$command --port 0 --jobs-dir jobs -q") >ready &
  server=$!
  exec 3<ready
  read -r ready <&3 || { echo "does not start: $1" >&2; return 1; }
  url=$(sed -E 's|.*open (http.*)/ in a browser.*|\1|' <<<"$ready")
}

stop() {
  kill -TERM "$server"
  wait "$server"
  server=
}

typed_lines "$source/docs/server.md" >all.txt
grep 'qwen-image serve' all.txt | grep -v -- '--help' >serve.txt
while IFS= read -r line; do
  start "$line"
  stop
done <serve.txt
"$program" serve --help >help.txt

start "build/release/qwen-image serve"
# "# 400" behind a command: the status that it is meant to get.
{
  echo 'curl() { command curl --fail-with-body "$@"; }'
  grep -v 'qwen-image serve' all.txt | sed -E "s|$address|$url|g
    s/^curl (.*[^ ]) +# ([0-9]{3})\$/test \"\$(command curl \1 -o refused.json -w '%{http_code}')\" = \2/"
} >commands.sh
bash -euxo pipefail commands.sh
stop
echo "$(grep -c curl commands.sh) commands with curl, $(wc -l <serve.txt) servers"
