"""kills.py URL THREADS WHEN HOW PID..: clients without a pause; after WHEN seconds the processes get the signal HOW. Every
answer that comes whole must be the one its request had before; a stream that was cut must have said so. Prints counts;
exits 1 on a wrong answer or on a client that waits for longer than 30 s."""
import concurrent.futures, http.client, json, os, signal, sys, threading, time, urllib.parse

url, threads, when, how = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), getattr(signal, sys.argv[4])
pids, host = [int(p) for p in sys.argv[5:]], urllib.parse.urlparse(sys.argv[1]).netloc
over, lock, counts = threading.Event(), threading.Lock(), {}


def count(what):
    with lock:
        counts[what] = counts.get(what, 0) + 1


def question(i):
    return {'prompt': 'The king of '[:3 + i % 9], 'max_tokens': 5 + i % 40, 'temperature': 0, 'stream': i % 2 == 1}


def ask(q):
    """The text, or why there is none."""
    c = http.client.HTTPConnection(host, timeout=30)
    try:
        c.request('POST', '/v1/completions', json.dumps(q), {'Content-Type': 'application/json'})
        a = c.getresponse()
        body = a.read().decode()
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        return None, 'no connection'
    finally:
        c.close()
    if a.status != 200:
        return None, f'status {a.status}'
    if not q['stream']:
        return json.loads(body)['choices'][0]['text'], None
    events = [e[6:] for e in body.split('\n\n') if e]
    if events and events[-1] == '[DONE]':
        return ''.join(json.loads(e)['choices'][0]['text'] for e in events[:-1]), None
    return None, 'told within the stream' if events and 'error' in json.loads(events[-1]) else 'CUT WITHOUT A WORD'


def first(i):
    text, why = ask(question(i))
    assert why is None, why
    return text


known = [first(i) for i in range(360)]


def client(n):
    i = n
    while True:
        late = over.is_set()
        text, why = ask(question(i % 360))
        if why is None and text != known[i % 360]:
            raise SystemExit(f'{question(i % 360)}: {text!r}, before {known[i % 360]!r}')
        count(('after: ' if late else '') + (why or 'whole'))
        if why == 'no connection' and over.is_set():
            return
        i += threads


with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    clients = [pool.submit(client, n) for n in range(threads)]
    time.sleep(when)
    over.set()
    for p in pids:
        os.kill(p, how)
    for c in clients:
        c.result()
print(json.dumps(counts))
sys.exit('CUT WITHOUT A WORD' in counts)
