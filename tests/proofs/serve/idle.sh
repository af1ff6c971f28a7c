#!/bin/bash
# Claim: CONNECTIONS (1000) that have asked once and stay open cost the server under 50 MB.
source "$(dirname "$0")/../common.sh"
source "$(dirname "$0")/server.bash"
ulimit -n 4096
serve
"$python" - "$url" "$server" "${CONNECTIONS:-1000}" <<'END' || { echo FAILED; exit 1; }
import socket, sys, time, urllib.parse

at, pid, n = urllib.parse.urlparse(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def memory():
    time.sleep(1)
    return int([l for l in open(f'/proc/{pid}/status') if l.startswith('VmRSS')][0].split()[1]) / 1024


body = b'{"prompt": "The king", "max_tokens": 2}'
ask = b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body


def open_one():
    s = socket.create_connection((at.hostname, at.port))
    s.sendall(ask)
    answer = b''
    while b'"total_tokens":' not in answer or not answer.endswith(b'\n'):
        answer += s.recv(4096)
    return s


first = [open_one() for _ in range(10)]
before = memory()
held = [open_one() for _ in range(n)]
after = memory()
print(f'{n} connections: {before:.1f} MiB before, {after:.1f} MiB with them, {(after - before) * 1024 / n:.1f} KiB each')
sys.exit(after - before > 50e6 / 2**20)
END
nothing_left
