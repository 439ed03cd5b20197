// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusters starts real Kubernetes clusters for tests and the demo. A cluster is a set of processes on this
// machine: etcd, an API server, a controller manager, a scheduler, JobSet's manager, and kwok, which simulates nodes. A
// cluster is ready in seconds, takes some 450 MB, and needs neither Docker nor root.
//
//	c, err := clusters.Start(ctx, clusters.Full("worker-1", clusters.NodeShape{
//		Count:    8,
//		Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
//	}))
//	if err != nil { ... }
//	defer c.Stop()
//	client := kubernetes.NewForConfigOrDie(c.Config)
//
// Options with only a name start an API server and its etcd. That is all that a test of a controller needs. StartAll
// starts several clusters at a time. "make controlplane" builds the binaries.
//
// # Releases of Kubernetes
//
// Options.Release chooses the Kubernetes release of a cluster, so that a test has a hub and workers of several releases.
// The default is that of test/controlplane/go.mod: product and control plane then share their compiled libraries. The
// control planes of the others are in directories like bin/1.34, after "hack/build-controlplane.sh 1.34".
// $TRAINYARD_RELEASE is the release of all clusters whose options name none.
//
// # A control plane of a release
//
// With TRAINYARD_KUBERNETES=DIRECTORY clusters run etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// kubectl of a Kubernetes release, and nobody has to build our own control plane. Package upstream checks them. "make
// controlplane" then builds only JobSet's manager and kwok. Clusters with another Options.Release run what is in a
// directory like DIRECTORY/1.34. A cluster differs in this:
//
//   - The job controller batches for a second, and waits ten seconds before it replaces a failed pod, then longer.
//   - All OpenAPI documents are served, whatever Options.OpenAPI says: a start takes more CPU time and memory.
//   - etcd's data takes 128 MB for each cluster, because etcd allocates its log in larger files.
//   - The parts of the control plane do not end when their standard input is closed, because they know nothing of
//     TRAINYARD_END_WITH_STDIN. On Linux they end with their parent nevertheless: see below. Elsewhere they end with
//     their parent only if BinDir has our own control plane, too. Otherwise they stay behind if the parent is killed.
//
// # What is real
//
// Everything is real except nodes and kubelets. TLS is verified, RBAC is on, anonymous requests are refused, service
// account tokens and their Secrets work, the scheduler binds the pods, and the API server calls JobSet's webhooks. Each
// cluster has its own certificate authority, and listens on 127.0.0.1 only. etcd listens on Unix sockets in the
// cluster's directory.
//
// # Nodes and pods
//
// NodeShape describes nodes. kwok simulates the nodes, renews their leases and changes the status of their pods. The
// files in the directory stages say how. Annotations of a pod say what the pod does:
//
//	trainyard.dev/run-for: 3s         succeeds after this time (default 1s); "forever": runs until deleted
//	trainyard.dev/fail: OOM           fails instead, with this message and exit code 1
//	trainyard.dev/terminate-for: 2s   runs on for this long after its deletion (default: not at all)
//	trainyard.dev/log: "one\ntwo"     has printed this (default: nothing); change it, and the containers print more
//	trainyard.dev/log-size: 100Mi     has printed this many bytes before that, at most 1Gi (default: none)
//
// A pod whose restart policy is Always runs forever by default. Containers are never restarted in place, not even with
// the policy OnFailure: the pod fails instead. A run-for that is no duration leaves the pod Pending, and kwok's log
// says why.
//
// If you stop kwok (Process("kwok").Signal(syscall.SIGSTOP)), the node lifecycle controller finds all nodes unreachable
// after its grace period of 50 s. --node-monitor-grace-period in Options.ControllerManagerArgs shortens that. kwok
// renews the leases every ten seconds.
//
// # Logs, exec, attach and port-forward
//
// These are real except for what containers do: kubectl, API server and their protocols are, and the API server sends
// the requests to a kubelet. One kubelet in this process serves all nodes. The API server does not verify the kubelet's
// certificate, as in a cluster of kubeadm. The kubelet starts no programs, keeps no files and dials no ports: the pod
// and the request decide what it answers. A stream ends when the run of its container ends, or the pod.
// Cluster.CutStreams breaks all streams off.
//
// Only the last state of a container and the annotations of its pod count. So a test can simulate restarts in place: it
// writes restartCount and the states. LogAnnotation and LogSizeAnnotation say where the lines of each run are. A line
// that log-size asks for has 128 bytes and begins with "line" and its number, in nine digits. Such lines are made while
// they are read, so they take no memory. The time of a line is the start of its run, and a millisecond for each line
// before it.
//
// Exec knows these commands, with or without a directory before the name. Others fail with exit code 127. A command
// whose container ends has exit code 137.
//
//	cat             copies stdin to stdout
//	echo WORDS      prints the words
//	env             prints HOSTNAME (the pod's name), NAMESPACE and CONTAINER
//	exit N          has this exit code; so have true (0), false and test (1)
//	sleep SECONDS   waits; "infinity": until the connection or the container ends
//	resize          prints the size of the terminal, as 80x24, and each new size, until stdin ends
//	sh -c SCRIPT    runs these commands, separated by ";" or lines; ">&2" after a command sends its output to stderr
//	sh              runs the commands that come from stdin
//	tar cf - FILE   writes an archive with one file, which has the container's log
//	tar -xmf -      reads an archive, and prints name, size and SHA-256 of each file
//
// So "kubectl cp" can copy a log of any size from a container, and prints what it has copied to one. A terminal
// (exec -t) changes nothing but that it has a size. In scripts words are separated by blanks, and there are no quotes,
// variables or pipes.
//
// Attach prints what the container prints from then on, and repeats what comes from stdin. A forwarded port answers
// HTTP requests with a line "pod NAMESPACE/NAME port PORT: METHOD PATH". Port 7 returns what it gets. Port 9 refuses
// connections.
//
// What clients make of it is theirs. kubectl takes logs and exec for complete when a stream is cut, because it gets no
// error from the API server. A port-forward over WebSockets notices the end of its pod after ten seconds, with its next
// ping. When a client of exec over WebSockets goes, the API server only ends stdin: sleep goes on until its container
// ends.
//
// # What to watch out for
//
//   - The garbage collector learns of new kinds every 30 s. Options.CRDs installs CRDs before it starts.
//   - Without the controller manager two admission plugins are off: ServiceAccount, because nobody creates the
//     accounts, and TaintNodesByCondition, because nobody removes the taints. So tests can create pods and nodes by
//     hand.
//   - Kubernetes' own kinds have no OpenAPI documents, for a quicker start, unless Options.OpenAPI asks for them. kubectl
//     apply and create then leave the validation to the API server.
//   - API priority and fairness is off, for a quicker start. Options.APIServerArgs can turn it on.
//   - The job controller batches for 100 ms instead of a second. It waits a second instead of ten before it replaces a
//     failed pod.
//   - Only the controllers in components.go run. There are no Deployments.
//   - etcd begins with a baseline, a copy of the data of a first start with the same CRDs. The user's cache directory
//     keeps the baselines. So two clusters have roles, CRDs and namespaces with equal UIDs. The namespace kube-system has
//     another UID in each cluster.
//   - etcd does not sync to disk: data survives a crash of any process, but not of the machine.
//   - A temporary directory is deleted with the cluster, and the logs with it. TRAINYARD_KEEP=1 keeps it. If a part
//     ends during a start, the error has the end of its log.
//
// # The end of a cluster
//
// Stop ends a cluster. A cluster also ends with the process that started it, in whatever way that process ends. On
// Linux the kernel sends SIGKILL to each child when the parent dies. On all systems the parts of our own control plane
// end when the pipe at their standard input is closed. Children have their own process groups, so that Ctrl-C does not
// change the order in which we end them.
//
// On Linux, sockets that are bound and never listen reserve the ports. So parallel test packages do not collide, and an
// API server that was killed finds its port again.
//
// # kind
//
// TRAINYARD_CLUSTERS=kind starts the clusters with kind, with Docker: real kubelets and containers. KIND_IMAGE is the
// node image; the default is the one that kind publishes. Options.Kind has the nodes, images and mounts of a cluster.
// JobSet's manager runs as a Deployment (JobSetImage). kwok and its kubelet still run on this machine, so a cluster of
// kind has real nodes and simulated ones. DeployKustomization deploys what must not run on simulated nodes. The limits:
//
//   - The arguments of the API server and its audit log cannot be set: those options return errors.
//   - KillAPIServer moves the manifest of the static pod away. PauseAPIServer lasts until the kubelet's probes fail,
//     which takes more than a minute.
//   - Webhook servers beside a cluster, and logs, exec, attach and port-forward of kwok's pods, need the address at
//     which nodes reach this machine: the gateway of the nodes, or TRAINYARD_KIND_HOST. It must be an IPv4 address of a
//     network interface, so this does not work with Docker Desktop.
//   - Clusters of kind survive a killed parent ("kind delete cluster"). All users of the engine share their names, so a
//     cluster whose name is taken does not start, and leaves the other cluster alone.
//   - kind writes into the kubeconfig in the cluster's directory, never into that of the user.
//
// # Locks
//
// Cluster.mu guards the processes beside the cluster and the ports of webhook servers. processes.mu guards the parts.
// Cluster.kwokMu is held while kwok and its kubelet start, so that concurrent calls of AddNodes start only one kwok.
package clusters
