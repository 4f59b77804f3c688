"""The training algorithms: what is averaged, with whom, and when; and how much is computed for it.

Each has its file and one line here: what this module imports is what `wagma` has.
"""

from wagma.training.policies.dropcompute import DropCompute as DropCompute
from wagma.training.strategies.adpsgd import ADPSGD as ADPSGD
from wagma.training.strategies.allreduce import AllreduceSGD as AllreduceSGD
from wagma.training.strategies.auto import Auto as Auto
from wagma.training.strategies.base import Algorithm as Algorithm
from wagma.training.strategies.cannikin import Cannikin as Cannikin
from wagma.training.strategies.diloco import DiLoCo as DiLoCo
from wagma.training.strategies.dpsgd import DPSGD as DPSGD
from wagma.training.strategies.eager import EagerSGD as EagerSGD
from wagma.training.strategies.fastest_k import FastestK as FastestK
from wagma.training.strategies.kasync import KAsync as KAsync
from wagma.training.strategies.ksync import KSync as KSync
from wagma.training.strategies.local import LocalSGD as LocalSGD
from wagma.training.strategies.parameter_server import ParameterServerSGD as ParameterServerSGD
from wagma.training.strategies.sgp import SGP as SGP
from wagma.training.strategies.wagma import WAGMA as WAGMA
