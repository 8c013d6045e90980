import sys

from jupyter_mntrain.agent.main import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
