# Hosts: network namespaces (two and three), a real sshd, the ready job scripts,
# mpirun; each gives the numbers of one process, bit for bit. What is not permitted
# or installed here is skipped with a notice.
. "$(dirname "$0")/../common.sh"
make --no-print-directory gloo || true # without it the ranks talk over plain TCP
go test -count=1 -v -run 'TestNamespaces|TestHosts|TestJobs' ./tests | grep -E '^ *(---|ok|FAIL|[a-z_]+_test.go)'
