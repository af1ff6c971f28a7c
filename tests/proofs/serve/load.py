"""load.py URL REQUESTS PID [SECONDS]: clients of all manners against a server of golden/serve/model. A good request has
temperature 0 or a seed, so its answer is known from its first time. With SECONDS requests go on for so long, and REQUESTS / 4
of them warm the server. Prints counts and the server's memory; exits 1 on a wrong answer, or where memory grew."""
import concurrent.futures, http.client, itertools, json, random, socket, sys, threading, time, urllib.parse

url, requests, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 0
host = urllib.parse.urlparse(url).netloc
known, lock, counts = {}, threading.Lock(), {}


def memory(field='VmRSS'):
    return int([l for l in open(f'/proc/{pid}/status') if l.startswith(field)][0].split()[1]) // 1024


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


def costly(r):
    """Legal or not, each asks for more than its share; the answer is 200, or an error with its reason."""
    text = {'prompt': 'O', 'max_tokens': 4}
    chat = {'messages': [{'role': 'user', 'content': 'O'}], 'max_tokens': 4}
    deep = {'type': 'array', 'items': {'type': 'integer'}}
    for _ in range(r.randrange(1, 200)):
        deep = {'type': 'object', 'properties': {'a': deep}, 'required': ['a']}
    schema = {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': deep}}
    kind, path, body = r.choice([
        ('number', 'completions', text | {'max_tokens': 2**63 - r.randrange(3)}),
        ('number', 'completions', text | {r.choice(['n', 'best_of', 'logprobs', 'top_k', 'seed']): r.choice([2**31, 2**63 - 1, -(2**63), 1e300])}),
        ('biases', 'completions', text | {'n': r.randrange(1, 129), 'logit_bias': {str(t): -1 for t in range(r.randrange(1, 1500))}}),
        ('body', 'completions', text | {'prompt': 'king ' * r.randrange(1000, 800_000)}),
        ('body', 'completions', text | {'stop': ['x' * 900_000] * 4}),
        ('depth', 'completions', text | {'user': json.loads('[' * 900 + ']' * 900)}),
        ('schema', 'chat/completions', chat | {'response_format': schema}),
        ('arguments', 'chat/completions', chat | {'chat_template_kwargs': {'x': ['y' * 1000] * r.randrange(1000)}}),
        ('messages', 'chat/completions', chat | {'messages': chat['messages'] * r.randrange(1, 20_000)}),
    ])
    c = http.client.HTTPConnection(host, timeout=300)
    try:
        c.request('POST', '/v1/' + path, json.dumps(body), {'Content-Type': 'application/json'})
        a = c.getresponse()
        data = json.loads(a.read())
    except (BrokenPipeError, ConnectionResetError):  # an oversized body is not read to its end
        count(f'{kind}: closed')
        return
    finally:
        c.close()
    assert a.status == 200 or a.status in (400, 413, 429, 503) and data['error']['message'], (kind, a.status, data)
    count(f'{kind}: {a.status}')


def one(i):
    r = random.Random(i)
    x = r.random()
    (good if x < .7 else costly if x < .8 else leaves if x < .9 else bad)(r)


def until(end):
    for i in itertools.count(requests // 4):
        if time.time() > end:
            return
        yield i


with concurrent.futures.ThreadPoolExecutor(32) as pool:
    list(pool.map(one, range(requests // 4)))
    before, start = memory(), time.time()
    if seconds:  # each client takes the next number until time is up
        numbers, taking = until(start + seconds), threading.Lock()

        def client(_):
            while True:
                with taking:
                    i = next(numbers, None)
                if i is None:
                    return
                one(i)

        list(pool.map(client, range(32)))
    else:
        list(pool.map(one, range(requests // 4, requests)))
took = time.time() - start
time.sleep(3)  # bodies go back to the system two seconds after the last
after, peak = memory(), memory('VmHWM')
print(f'{took:.1f} s, {sum(counts.values())} requests', dict(sorted(counts.items())), f'{len(known)} different')
print(f'memory {before} MiB after a quarter, {after} MiB at the end, {peak} MiB at most')
sys.exit(after > before * 1.3 + 64 or peak > before + 1024)
