"""Mutations of where bytes live: reads, arenas, tiers, plans, downloads, misses, the ring of prompts and files."""

from mutation import mutation as _m

READS = ("tests/memory/test_reads.py",)
ARENA = ("tests/memory/test_arena.py",)
HELD = ("tests/memory/test_held.py",)
TIER = ("tests/memory/test_tier.py",)
STOCK = ("tests/memory/test_stock.py",)
DISK = ("tests/experts/misses/test_disk.py",)
ROWS = ("tests/memory/test_row_cache.py",)
PLANNED = ("tests/memory/budget/test_plan.py",)
LENT = ("tests/ops/tiers/test_loan.py",)
SLOTS = ("tests/memory/slots/test_cache.py",)
PLAN_MEASURED = ("tests/memory/budget/test_measured.py",)
LOADED = ("tests/api/test_planning.py",)
RETRIED = ("tests/api/test_retrying.py",)
WATCHED = ("tests/engine/test_watch.py",)
OVERCOMMIT = ("tests/memory/budget/test_overcommit.py",)
PULLED = ("tests/hub/test_pull.py",)
HOST_LOOP = ("tests/experts/misses/test_host.py", "-k", "not thousands")
SCHEDULE = ("tests/ops/prompt/stream/test_schedule.py",)
PACKED = ("tests/session/test_packed.py",)
EARLY = ("tests/session/test_early.py",)
PLANES = ("tests/session/test_planes.py",)
READ_FILES = ("tests/session/test_reading.py", "-k", "buffers")
FOLDER = ("tests/session/test_folder.py", "-k", "came_out")
STREAMED = ("tests/ops/prompt/stream/test_streaming.py",)
RECORDS = ("tests/ops/tiers/test_records.py",)
COPIES = ("tests/ops/tiers/test_copies.py",)

MEMORY = (
    _m(
        "storage: a short direct read goes on inside a block",
        "memory/reads/pread.py",
        "after -= after % block",
        "pass",
        READS,
    ),
    _m("storage: an interrupted read is an error", "memory/reads/pread.py", "number != EINTR", "True", READS),
    _m("storage: memory that others share", "memory/arena/region.py", "mmap.MAP_PRIVATE |", "mmap.MAP_SHARED |", ARENA),
    _m(
        "storage: an interrupted filling leaves its memory",
        "memory/arena/filling.py",
        "region.give_back()",
        "pass",
        ARENA,
    ),
    _m("storage: pinned experts are taken", "memory/tier/held.py", " & (self._pins[kind] == 0)", "", HELD),
    _m("storage: old visits count like new ones", "memory/tier/held.py", "self._now / self._half_life", "0.0", HELD),
    _m(
        "storage: an expert that went keeps its address",
        "memory/tier/room.py",
        "        for gone in out:",
        "        for gone in ():",
        TIER,
    ),
    _m(
        "storage: the newest row of a set goes",
        "memory/ngram/cache.py",
        "used[way] < used[oldest]",
        "used[way] > used[oldest]",
        ROWS,
    ),
    _m(
        "prompts: a buffer is filled while it is read",
        "ops/prompt/stream/schedule.py",
        "self._last_before(end - self.ring)",
        "self._last_before(end - self.ring - 1)",
        SCHEDULE,
    ),
    _m(
        "prompts: a copy is handed over before what it waits for",
        "ops/prompt/stream/schedule.py",
        ".after < self._computed:",
        ".after <= self._computed:",
        SCHEDULE,
    ),
    _m(
        "stream: a group is launched for tiles that others have",
        "ops/prompt/stream/streaming.py",
        "most=max(1, min(span.most, tiles))",
        "most=span.most",
        STREAMED,
    ),
    _m(
        "stream: a group's rows are put in order for pairs that others have",
        "ops/prompt/stream/streaming.py",
        "pairs=min(span.pairs, pairs)",
        "pairs=span.pairs",
        STREAMED,
    ),
    _m(
        "records: who lacks nothing when it is recorded never will",
        "ops/prompt/ops.py",
        "if self._records.making is not None or self.streaming.lacks(number):",
        "if self.streaming.lacks(number):",
        RECORDS,
    ),
    _m(
        "records: those of another ring are run",
        "ops/prompt/ops.py",
        "self.streaming, self._records = streaming, Records()",
        "self.streaming = streaming",
        RECORDS,
    ),
    _m(
        "records: the order in which experts come is that of the first pass",
        "ops/prompt/stream/streaming.py",
        "self._ranks.copy_(sent(self._rank, self._device))",
        "self._ranks = sent(self._rank, self._device)",
        RECORDS,
    ),
    _m(
        "copies: what a cut tears is one copy",
        "ops/tiers/runs.py",
        "end = width if cut == many else min(width, cuts[cut] - source)",
        "end = width",
        COPIES,
    ),
    _m(
        "copies: neighbours whose places lie apart are one",
        "ops/tiers/runs.py",
        "row[i] != row[i - 1] + 1",
        "row[i] < row[i - 1]",
        COPIES,
    ),
    _m(
        "plan: slots are counted by their size in the file",
        "memory/budget/plan.py",
        "[one.slot for one in classes], max",
        "[one.stored for one in classes], max",
        PLAN_MEASURED,
    ),
    _m(
        "plan: what brings experts is counted twice",
        "memory/budget/plan.py",
        "least_pass + max(fewest, transit)",
        "least_pass",
        PLANNED,
    ),
    _m("plan: a long prompt borrows all slots", "memory/budget/plan.py", "in_slots // LENT", "in_slots", PLANNED),
    _m("plan: the ring comes before passes", "memory/budget/plan.py", "may < wanted + sizes.ring", "may < 0", PLANNED),
    _m(
        "plan: slots lend what the driver cannot take away",
        "memory/budget/plan.py",
        "count < len(turn) and machine.lends is not False",
        "count < len(turn)",
        PLANNED,
    ),
    _m("loan: a ring whatever there is", "ops/tiers/loan.py", "need + self._ring <= may", "True", LENT),
    _m("loan: memory never comes back", "ops/tiers/tier.py", "self._lent or self.borrowing.nbytes", "self._lent", LENT),
    _m(
        "loan: those that count least stay",
        "memory/slots/cache.py",
        "argsort(-worth[behind]",
        "argsort(worth[behind]",
        ("tests/memory/slots/test_device.py", "-k", "count_most"),
    ),
    _m("plan: fewer slots than the fewest", "memory/budget/plan.py", "max(wanted, fewest)", "wanted", PLANNED),
    _m(
        "plan: what brings experts takes no memory",
        "memory/budget/plan.py",
        "min(wanted, room - transit)",
        "wanted",
        PLANNED,
    ),
    _m(
        "plan: a size of experts is left out of RAM",
        "memory/budget/plan.py",
        "fill.some_first(fill.order(tuple(one.experts for one in classes)), least.fewest_held(sizes))",
        "fill.order(tuple(one.experts for one in classes))",
        PLANNED,
    ),
    _m(
        "load: conversations have as many cells as one",
        "loading/gpu.py",
        "cells=made.cells, kv=",
        "cells=made.context, kv=",
        LOADED,
    ),
    _m(
        "load: passes as long as there can be", "loading/gpu.py", ", rows=made.rows, loan=loan)", ", loan=loan)", LOADED
    ),
    _m(
        "load: a draft head that is not planned",
        "loading/network.py",
        "    if not made.drafts:\n        return replace(weights, mtp=None), replace(config, mtp=False)\n",
        "",
        LOADED,
    ),
    _m(
        "load: experts beside what is padded",
        "loading/sizes.py",
        "SlotShape(_parts(parts, c)).nbytes",
        "stored",
        LOADED,
    ),
    _m(
        "load: memory that is refused ends it",
        "loading/gpu.py",
        ' and "out of memory" not in str(error)',
        "",
        RETRIED,
    ),
    _m("watch: windows of all sizes together", "engine/watch.py", "rows = record.rows", "rows = 1", WATCHED),
    _m(
        "plan: half of what has no slot is enough",
        "memory/budget/tiers.py",
        "elif room >= outside:",
        "elif room >= outside // 2:",
        PLANNED,
    ),
    _m(
        "plan: what fits exactly is refused",
        "memory/budget/least.py",
        "if one.need > one.free",
        "if one.need >= one.free",
        PLAN_MEASURED,
    ),
    _m(
        "plan: the draft head's cells are forgotten",
        "memory/budget/least.py",
        "if chosen.gpu and chosen.drafts and sizes.draft_cells is not None:",
        "if False:",
        PLANNED,
    ),
    _m(
        "plan: layers have their slots one after another",
        "memory/budget/fill.py",
        "(2 * k + 1) / (2 * count)",
        "k",
        PLANNED,
    ),
    _m(
        "plan: more than assumed brings experts",
        "memory/budget/measured.py",
        "expected - free_after",
        "free_after - expected",
        PLAN_MEASURED,
    ),
    _m(
        "plan: another context than the largest that fits",
        "memory/budget/advice.py",
        "(context - 1) // STEP",
        "context // STEP - 1",
        PLANNED,
    ),
    _m("overcommit: fewer hits count as many", "memory/budget/overcommit.py", "hit <= place + 1", "True", OVERCOMMIT),
    _m(
        "pull: bytes that come twice are written twice",
        "hub/transfer.py",
        "skip = have - body.start",
        "skip = 0",
        PULLED,
    ),
    _m(
        "pull: what was here is not in the checksum",
        "hub/transfer.py",
        "    _feed(part, digest)\n    return digest, part",
        "    return digest, part",
        PULLED,
    ),
    _m(
        "pull: damaged bytes stay",
        "hub/transfer.py",
        "part.unlink()\n            self.on_bytes(-file.size)",
        "self.on_bytes(-file.size)",
        PULLED,
    ),
    _m(
        "pull: a busy hub's wish is not heard",
        "hub/transfer.py",
        "lost.wait if lost is not None and lost.wait is not None else ",
        "",
        PULLED,
    ),
    _m(
        "tiers: halves of a row's blocks are exchanged",
        "experts/misses/rows.py",
        "(k >> 4 & 1)",
        "(1 - (k >> 4 & 1))",
        HOST_LOOP,
    ),
    _m(
        "tiers: what a short last group lacks is read behind it",
        "experts/misses/rows.py",
        "if found[1 + GROUP + i] < here else np.int32(0)",
        "if here > 0 else np.int32(0)",
        ("tests/experts/misses/test_rows.py",),
    ),
    _m(
        "tiers: every fourth code is taken for a neighbour",
        "experts/misses/rows.py",
        "[4 * (i & 3) + (i >> 2) for i in range(16)]",
        "[i for i in range(16)]",
        ("tests/experts/misses/test_rows.py",),
    ),
    _m(
        "tiers: sums of lanes forget that codes were moved up",
        "experts/misses/rows.py",
        " - np.int32(16 * 128)",
        "",
        ("tests/experts/misses/test_rows.py",),
    ),
    _m(
        "tiers: every expert is read where the first lies",
        "experts/misses/answer.py",
        "peek(where + 24 * experts[i] + 8)",
        "peek(where + 24 * experts[0] + 8)",
        HOST_LOOP,
    ),
    _m(
        "tiers: a fault leaves the wait as it is",
        "experts/misses/loop.py",
        "store(box + DONE, rung if failed == 0 else BROKEN)",
        "store(box + DONE, rung)",
        HOST_LOOP,
    ),
    _m(
        "tiers: a window begins beside an answer nobody waits for",
        "experts/misses/host.py",
        "        if self.busy:\n            raise TierError",
        "        if False:\n            raise TierError",
        HOST_LOOP,
    ),
    _m(
        "tiers: what the link takes before its first expert is forgotten",
        "experts/misses/split.py",
        "by_link = self.link_first + link * self.link if link else 0.0",
        "by_link = link * self.link",
        ("tests/experts/misses/test_split.py",),
    ),
    _m(
        "disk: whoever is shown to the device gives way",
        "memory/tier/held.py",
        "(self._pins[kind] == 0) & ~self._shown[kind])",
        "(self._pins[kind] == 0))",
        HELD,
    ),
    _m(
        "disk: the device is shown experts that may go",
        "memory/tier/stock.py",
        "np.where(self._shown[:, :, None], self.addresses, self.nobody)",
        "self.addresses.copy()",
        STOCK,
    ),
    _m(
        "disk: what is read ahead is not kept",
        "memory/tier/stock.py",
        "            if not self._booked[layer, expert]:\n",
        "            if True:\n",
        STOCK,
    ),
    _m(
        "disk: the host computes experts that are not there",
        "experts/misses/answer.py",
        "nobody == 0 or peek(where + 24 * experts[i]) != nobody",
        "nobody != 1",
        DISK,
    ),
    _m(
        "disk: a message is over when its first part is",
        "experts/misses/loop.py",
        "        if failed == 0 and step == PART:\n            return _given_back(desk)\n",
        "",
        DISK,
    ),
    _m(
        "disk: the link brings experts that are on the disk",
        "ops/tiers/kernels.py",
        "mask=lacks, other=0) != nobody)",
        "mask=lacks, other=0) != nobody + 1)",
        ("tests/ops/tiers/test_disk.py", "-k", "wherever_experts_lie and 0.4"),
    ),
    _m(
        "disk: a prompt's copy waits for a read that is not the next",
        "ops/prompt/stream/ring.py",
        "if group.number > upto and not self._layers.there(group.layer, group.experts):",
        "if False:",
        ("tests/ops/prompt/stream/test_reading.py",),
    ),
    _m(
        "tiers: rows that never came are what was there before",
        "ops/tiers/kernels.py",
        'tl.where(faulted, float("nan"), row)',
        "row",
        ("tests/ops/tiers/test_layers.py", "-k", "dead_worker"),
    ),
    _m(
        "tiers: products with downs do not wait for them",
        "ops/tiers/layer.py",
        "        downs()\n        down(slots",
        "        down(slots",
        ("tests/ops/tiers/test_layers.py", "-k", "downs"),
    ),
    _m(
        "files: what a file has of a piece is not summed up",
        "session/packing.py",
        "if crc(stored.data) != piece.sum:",
        "if False:",
        PACKED,
    ),
    _m(
        "files: a sum is compared after unpacking",
        "session/packing.py",
        "    if crc(stored.data) != piece.sum:",
        "    if not piece.whole:\n"
        "        list(_unpacked(stored[piece.rest : piece.rest + piece.packed], piece.plane))\n"
        "    if crc(stored.data) != piece.sum:",
        PACKED,
    ),
    _m(
        "early: a state waits for all of its files",
        "session/store.py",
        "if coming else None",
        "if False else None",
        EARLY,
    ),
    _m(
        "early: rows are read before what is put first",
        "session/store.py",
        "(path[-1], *path[:-1])",
        "path",
        EARLY,
    ),
    _m("early: rows are put before they came", "ops/gpu/parts.py", "                arrived(few.names)\n", "", EARLY),
    _m(
        "early: a tensor's last piece is not waited for",
        "session/reading.py",
        "-(-end // checksum.PIECE))",
        "end // checksum.PIECE)",
        EARLY,
    ),
    _m(
        "early: tables of a kind wait for one another",
        "ops/gpu/parts.py",
        "max(1, STAGING // nbytes)",
        "len(self.names)",
        EARLY,
    ),
    _m("files: a frame needs no checksum", "session/packing.py", " or not begin[-1] & CHECKED", "", PACKED),
    _m(
        "files: frames have no checksum",
        "session/packing.py",
        "zstd.CompressionParameter.checksum_flag: 1",
        "zstd.CompressionParameter.checksum_flag: 0",
        PACKED,
    ),
    _m(
        "files: the second plane first",
        "session/planes.py",
        "second, third = lower[count + first :], lower[2 * count + first :]",
        "third, second = lower[count + first :], lower[2 * count + first :]",
        PACKED,
    ),
    _m(
        "files: planes are put together with whatever lengths",
        "session/planes.py",
        " or not 0 <= first <= count - len(top)",
        "",
        PLANES,
    ),
    _m(
        "files: loops are compiled in the middle of an answer",
        "session/folder.py",
        "        packing.prepare()\n",
        "",
        PLANES,
    ),
    _m(
        "memory: large pieces are of small pages",
        "model/memory.py",
        "if nbytes >= LARGE:",
        "if False:",
        ("tests/model/test_memory.py",),
    ),
    _m("files: a frame may hold more than its piece", "session/packing.py", "min(PART, left)", "-1", PACKED),
    _m("files: all parts of a piece lie at its beginning", "session/packing.py", "first += len(top)", "pass", PACKED),
    _m("files: a frame that does not end is one", "session/packing.py", "left or not unpacker.eof ", "left ", PACKED),
    _m(
        "files: a table is believed before its checksum is",
        "session/fileformat.py",
        "if summed(digest, read[:-DIGEST]) != read[-DIGEST:]:",
        "if False:",
        PACKED,
    ),
    _m(
        "files: those that are cut off are noticed when they are read",
        "session/fileformat.py",
        "if size != expected:",
        "if size > expected:",
        PACKED,
    ),
    _m(
        "files: buffers stay where nothing is read",
        "session/reading.py",
        "self._free.clear()",
        "pass",
        READ_FILES,
    ),
    _m(
        "files: packed ones count as if they were not",
        "session/folder.py",
        "self._bytes += size - file.bytes",
        "pass",
        FOLDER,
    ),
)
