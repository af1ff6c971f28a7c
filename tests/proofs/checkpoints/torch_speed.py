"""Saves and loads 1.5 GB with torch.save and torch.load.

usage: torch_speed.py FOLDER
"""
import os, sys, time
import torch

path = os.path.join(sys.argv[1], 'speed.pt')
state = {f't{i}': torch.randn(25_000_000) for i in range(15)}
size = sum(t.numel() * 4 for t in state.values())


def rate(what, work):
    start = time.time()
    work()
    print(f'{what:40s} {size / (time.time() - start) / 1e9:6.2f} GB/s')


def save():
    torch.save(state, path)
    with open(path, 'rb+') as f:
        os.fsync(f.fileno())


rate('torch.save and fsync', save)
rate('torch.load, warm', lambda: torch.load(path, weights_only=True))
fd = os.open(path, os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
rate('torch.load, cold', lambda: torch.load(path, weights_only=True))
os.remove(path)
