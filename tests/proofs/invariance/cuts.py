# The cuts that runs of kills.py and long.py draw from, and the flags that say them.


def layouts(micros):
    """Every legal cut of up to 8 ranks, with those sizes of micro-batches that divide the batch of 8: tp, pp, cp, dp, sequence parallel, ZeRO stage, micro-batch."""
    for tp in 1, 2, 4:
        for pp in 1, 2, 4:
            for cp in 1, 2:
                for dp in 1, 2, 4, 8:
                    if tp * pp * cp * dp > 8 or tp * cp > 4:
                        continue
                    for sp in [False, True] if tp > 1 else [False]:
                        for zero in [0, 1, 2, 3] if dp * cp > 1 else [0]:
                            for micro in micros:
                                if 8 % (micro * dp) == 0:
                                    yield tp, pp, cp, dp, sp, zero, micro


def flags(l):
    tp, pp, cp, dp, sp, zero, micro = l
    out = ['--micro-batch-size', str(micro)]
    for name, n in ('tensor-model', tp), ('pipeline-model', pp), ('context', cp):
        if n > 1:
            out += [f'--{name}-parallel-size', str(n)]
    return out + ['--cp-comm-type', 'a2a'] * (cp > 1) + ['--sequence-parallel'] * sp + ['--zero-stage', str(zero)] * (zero > 0)
