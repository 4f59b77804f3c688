"""The paper's clusters, that ranks emulate; `wagma reproduce cannikin` computes with the same."""

from wagma.theory.cannikin.clusters import ClusterName, cluster, made_cluster, subset

__all__ = ["ClusterName", "cluster", "made_cluster", "subset"]
