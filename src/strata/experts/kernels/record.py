"""The layout of a record: one row's activations for one group of 256 weights.

| bytes | what |
|---|---|
| 0-255 | codes, int8, in the decoder's order |
| 256-319 | minus the decoder's offset times the sum of each lane's codes, ``int32 [16]`` |
| 320-351 | the scale s of each block, ``float32 [8]`` |
| 352-383 | the sum z of each block's activations, ``fl(s * sum of codes)``, ``float32 [8]`` |
| 384-415 | all bits set for blocks within the row, none behind its end, ``int32 [8]`` |
| 416-447 | zeros: a record fills whole cache lines |
"""

GROUP = 256  # weights
START_AT, SCALE_AT, SUM_AT, KEEP_AT, RECORD = 256, 320, 352, 384, 448
