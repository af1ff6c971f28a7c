"""load.py URL REQUESTS PID: clients of all manners against a server of golden/serve/model. A good request has temperature 0
or a seed, so its answer is known from its first time. Prints counts and the server's memory; exits 1 on a wrong answer."""
import concurrent.futures, http.client, json, random, socket, sys, threading, time, urllib.parse

url, requests, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host = urllib.parse.urlparse(url).netloc
known, lock, counts = {}, threading.Lock(), {}


def memory():
    return int([l for l in open(f'/proc/{pid}/status') if l.startswith('VmRSS')][0].split()[1]) // 1024


def count(what):
    with lock:
        counts[what] = counts.get(what, 0) + 1


def ask(body, stream=False):
    c = http.client.HTTPConnection(host, timeout=120)
    c.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
    return c, c.getresponse()


def good(r):
    q = {'prompt': 'The king of '[:r.randrange(3, 12)] * r.randrange(1, 4), 'max_tokens': r.randrange(1, 20), 'logprobs': 1}
    q.update({'temperature': 0} if r.random() < .5 else {'temperature': 1, 'seed': r.randrange(5)})
    c, a = ask(q)
    data = json.loads(a.read())
    c.close()
    if a.status == 429:
        count('good, told to come again')
        return
    assert a.status == 200, data
    answer = json.dumps(data['choices'])
    with lock:
        first = known.setdefault(json.dumps(q), answer)
    assert first == answer, f'{q}: {answer}, before {first}'
    count('good')


def leaves(r):
    c, a = ask({'prompt': 'O', 'max_tokens': 60, 'stream': True})
    a.read(r.randrange(1, 200))
    c.sock and c.sock.close()
    c.close()
    count('left')


def raw(data, wait=0.0):
    name, port = host.split(':')
    with socket.create_connection((name, int(port)), timeout=30) as s:
        try:
            s.sendall(data)
            time.sleep(wait)
            s.recv(1000)
        except OSError:
            pass


def bad(r):
    kind = r.choice(['garbage', 'oversized', 'headers', 'half', 'slow'])
    head = b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n'
    if kind == 'garbage':
        raw(r.randbytes(500) + b'\r\n\r\n')
    elif kind == 'oversized':
        raw(head + b'Content-Length: 9000000\r\n\r\n' + b'x' * 5000000)
    elif kind == 'headers':
        raw(head + b''.join(b'X-%d: %s\r\n' % (i, b'y' * 100) for i in range(2000)) + b'\r\n')
    elif kind == 'half':
        raw(head + b'Content-Length: 100\r\n\r\n{"prompt": "x"')
    else:
        raw(head + b'Content-Length: 51\r\n\r\n{"prompt": "O", "max_tokens": 60, "stream": true}  ', 0.3)
    count(kind)


def one(i):
    r = random.Random(i)
    x = r.random()
    (good if x < .8 else leaves if x < .9 else bad)(r)


with concurrent.futures.ThreadPoolExecutor(32) as pool:
    list(pool.map(one, range(requests // 4)))
    before, start = memory(), time.time()
    list(pool.map(one, range(requests // 4, requests)))
print(f'{time.time() - start:.1f} s', counts, f'{len(known)} different; memory {before} MiB after a quarter, {memory()} MiB at the end')
sys.exit(memory() > before * 1.3 + 64)
