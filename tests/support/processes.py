"""Processes that share a group, of gloo or NCCL, and all run what they are sent."""

import faulthandler
import multiprocessing
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

SECONDS = 100  # for one call
PRELOADED = ["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.debug", "wmma_ops.distributed"]


class Group:
    def __init__(self, size: int, folder: Path, backend: str = "gloo"):
        # The server imports once, before it has threads; every process is a fork of it.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._folder, self._pipes, self._processes = folder, [], []
        for rank in range(size):
            mine, theirs = context.Pipe()
            arguments = (backend, rank, size, folder, theirs)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def run(self, function, *arguments):
        """function(*arguments) in every process; the results by rank. What one raises is raised here."""
        for rank, pipe in enumerate(self._pipes):
            try:
                pipe.send((function, arguments))
            except BrokenPipeError:
                raise AssertionError(f"rank {rank}: {self._death(rank)}") from None
        results, failures = [], []
        for rank, pipe in enumerate(self._pipes):
            # Where one has failed, the others may wait for it for ever.
            if not pipe.poll(5 if failures else SECONDS):
                failures.append(f"rank {rank} did not answer")
                continue
            try:
                failed, result = pipe.recv()
            except (EOFError, ConnectionError):
                failed, result = True, self._death(rank)
            (failures if failed else results).append(f"rank {rank}: {result}" if failed else result)
        if failures:
            raise AssertionError("\n".join(failures))
        return results

    def _death(self, rank):
        """How the process of that rank ended, and where it then was."""
        process = self._processes[rank]
        process.join(5)
        where = _stacks(self._folder, rank)
        return f"ended with {process.exitcode}; its stacks:\n{where.read_text()}"

    def close(self):
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()


def _stacks(folder, rank):
    return folder / f"stacks of {rank}"


def _serve(backend, rank, size, folder, pipe):
    torch.set_num_threads(1)
    faulthandler.enable(_stacks(folder, rank).open("w"))
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:  # closed
            return
        torch.manual_seed(0)
        try:
            pipe.send((False, function(*arguments)))
        except Exception:
            pipe.send((True, traceback.format_exc()))
