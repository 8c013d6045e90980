"""Rendezvous: what ranks need to act together, for jobs of which torch is not the subject:
importing it takes 2 s of a core per rank."""

RENDEZVOUS = """
import os, socket, time
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1

def _connected():
    while True:
        try:
            return socket.create_connection(PLACE)
        except OSError:  # rank 0 is starting
            time.sleep(0.1)

if RANK:
    peers = [_connected()]
else:
    server = socket.create_server(PLACE)
    peers = [server.accept()[0] for _ in range(SIZE - 1)]

def agreed(wish):
    '''What rank 0 wishes, once every rank is there.'''
    if RANK:
        peers[0].sendall(b"?")
        said = peers[0].recv(1)
        assert said, "rank 0 is gone"
        return said == b"1"
    assert all([peer.recv(1) for peer in peers]), "a rank is gone"
    for peer in peers:
        peer.sendall(b"1" if wish else b"0")
    return wish
"""
