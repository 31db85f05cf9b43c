"""Chains that travel between processes, each of which holds a shard of the data."""

from darkbayes.teacher.distributed.chain import DistributedChain as DistributedChain
from darkbayes.teacher.distributed.chain import distributed_chain as distributed_chain
