"""What boto3 does in bucket.sh: the peer that puts data, reads checkpoints, and is timed.

    bucket.py make BUCKET              waits for the server, then makes the bucket
    bucket.py put FILE BUCKET KEY      puts a file, and prints the seconds that it took
    bucket.py get FILE BUCKET KEY      gets a file, on disk when the time ends, and prints the seconds
    bucket.py same FOLDER BUCKET PREFIX  compares a save folder with the objects under a prefix, byte for byte
    bucket.py has FOLDER BUCKET PREFIX   the same, but the bucket may have more objects
"""
import os
import sys
import time

import boto3
from botocore.config import Config

command, *words = sys.argv[1:]
s3 = boto3.client("s3", config=Config(retries={"max_attempts": 10}))
if command == "make":
    for _ in range(300):
        try:
            s3.create_bucket(Bucket=words[0])
            break
        except Exception:  # the server is not there yet
            time.sleep(0.2)
    else:
        sys.exit("FAILED: the server does not answer")
elif command == "put":
    path, bucket, key = words
    start = time.monotonic()
    s3.upload_file(path, bucket, key)
    print(time.monotonic() - start)
elif command == "get":
    path, bucket, key = words
    start = time.monotonic()
    s3.download_file(bucket, key, path)
    with open(path, "rb") as f:
        os.fsync(f.fileno())
    print(time.monotonic() - start)
elif command in ("same", "has"):
    folder, bucket, prefix = words
    local = {os.path.relpath(os.path.join(d, f), folder) for d, _, files in os.walk(folder) for f in files}
    remote = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/"):
        for o in page.get("Contents", []):
            remote[o["Key"][len(prefix) + 1 :]] = s3.get_object(Bucket=bucket, Key=o["Key"])["Body"].read()
    if local - set(remote) or command == "same" and local != set(remote):
        sys.exit(f"FAILED: the folder has {sorted(local)}, the bucket has {sorted(remote)}")
    for name in local:
        with open(os.path.join(folder, name), "rb") as f:
            if f.read() != remote[name]:
                sys.exit(f"FAILED: {name} differs in the bucket")
    print(f"boto3 reads {len(remote)} objects of {sum(map(len, remote.values()))} bytes, the same as the files")
