"""Configurations of quorum "all" that are explored: arguments, and whether depth first as well."""

QUICK: tuple[tuple[str, bool], ...] = (
    # groups of one: nobody is waited for but at the window
    ("--ranks 1 --group 1 --programs nsnzd", True),
    ("--ranks 2 --group 1 --programs nnnnd --window 1 --deaths 1", True),
    ("--ranks 3 --group 1 --programs d,nnnd,nnnd --window 1 --deaths 1", False),
    # two ranks, records and slices: departure, exit without it, sync versions, weights 0
    ("--ranks 2 --group 2 --programs nnnnd --deaths 2", True),
    ("--ranks 2 --group 2 --programs nsnnd --deaths 2 --slices 2", True),
    ("--ranks 2 --group 2 --programs nnnnd --slices 3 --deaths 1 --give-up", False),
    ("--ranks 2 --group 2 --programs nnsd,nnsnd --slices 2 --deaths 1 --give-up", True),
    ("--ranks 2 --group 2 --programs nnnn,nnd --slices 2", False),
    ("--ranks 2 --group 2 --programs nnnn,nn --slices 1", False),
    ("--ranks 2 --group 2 --programs nnnf,nnd --slices 2 --deaths 1 --give-up", False),
    ("--ranks 2 --group 2 --programs nzny,zzns --slices 2 --deaths 1", False),
    ("--ranks 2 --group 2 --programs nzzz,znzz --give-up", False),
    # ranks that disagree about the sync version: nobody hangs, and somebody is told
    ("--ranks 2 --group 2 --programs nnn,nsn --slices 1", True),
    ("--ranks 3 --group 2 --programs sn,sn,nn --slices 1", False),
    ("--ranks 3 --group 2 --programs ns,nn,nn --deaths 1", False),
    # three ranks: groups whose composition changes, and all in one
    ("--ranks 3 --group 2 --programs nnnd --deaths 2 --window 1", True),
    ("--ranks 3 --group 2 --programs nsnd --deaths 1", False),
    ("--ranks 3 --group 2 --programs nnnd --slices 1 --deaths 1", True),
    ("--ranks 3 --group 2 --programs nnsd --slices 1 --deaths 1 --give-up", False),
    ("--ranks 3 --group 2 --programs nd,nnnd,znnd --slices 2 --deaths 1", False),
    ("--ranks 3 --group 3 --programs nnnd --deaths 1", False),
    ("--ranks 3 --group 3 --programs nnzd --deaths 2 --give-up", False),
    ("--ranks 3 --group 3 --programs nd,nnd,nnd --slices 1 --deaths 1", False),
    ("--ranks 3 --group 3 --programs nz --slices 2 --deaths 1", True),
    ("--ranks 3 --group 3 --programs nn --slices 1 --give-up", False),
    ("--ranks 3 --group 3 --programs nf,nd,nnd --slices 1 --deaths 1", False),
    ("--ranks 3 --group 2 --programs nnf,nnnd,nnnd --slices 1", False),
    # posted calls, whose callers go away
    ("--ranks 2 --group 2 --programs ppnd --slices 2 --deaths 2", True),
    ("--ranks 2 --group 2 --programs pnpd --slices 3 --deaths 1 --give-up", False),
    ("--ranks 3 --group 3 --programs pd,nd,nd --slices 2 --deaths 1", True),
    ("--ranks 3 --group 3 --programs pd,pd,nd --slices 1 --deaths 1 --give-up", False),
    ("--ranks 3 --group 2 --programs pnnd,npnd,nnpd --slices 1 --deaths 1", False),
    # four ranks
    ("--ranks 4 --group 2 --programs nnd --deaths 1", False),
    ("--ranks 4 --group 2 --programs nd --slices 1 --deaths 1", False),
    ("--ranks 4 --group 4 --programs nd --deaths 1", False),
    # beyond: random walks, in which nobody dies
    ("--ranks 4 --group 2 --programs nnsnnnsd,nnd --slices 2 --walks 650", False),
    ("--ranks 5 --group 3 --programs nnnnsnnnz --slices 2 --walks 300", False),
    ("--ranks 5 --group 5 --programs nnnznnnn,nnd --slices 4 --walks 300", False),
)

# Depth first: the table alone takes memory, 512 MiB at 26 bits.
FULL: tuple[str, ...] = (
    "--ranks 3 --group 3 --programs nnd --slices 2 --deaths 1 --give-up --dfs",
    "--ranks 3 --group 2 --programs nnnnd --slices 2 --deaths 1 --give-up --dfs",
    "--ranks 3 --group 3 --programs ppd,npd,nnd --slices 2 --deaths 1 --give-up --dfs",
    "--ranks 4 --group 4 --programs nd --slices 1 --deaths 1 --dfs",
    "--ranks 4 --group 4 --programs nnd --deaths 1 --dfs",
    "--ranks 4 --group 2 --programs nnd --slices 1 --deaths 1 --dfs",
)
