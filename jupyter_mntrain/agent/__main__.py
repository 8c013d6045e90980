import sys

from jupyter_mntrain.command_line.needed_packages import needed_packages

with needed_packages("mntrain agent"):
    from jupyter_mntrain.agent.main import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
