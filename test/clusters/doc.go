// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusters starts real Kubernetes clusters for tests and the demo, as
// processes on this machine: etcd, an API server, a controller manager, a
// scheduler, JobSet's manager, and kwok in the place of nodes. A cluster is ready in seconds,
// takes some 450 MB and needs neither Docker nor root.
//
//	c, err := clusters.Start(ctx, clusters.Full("worker-1", clusters.NodeShape{
//		Count:    8,
//		Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
//	}))
//	if err != nil { ... }
//	defer c.Stop()
//	client := kubernetes.NewForConfigOrDie(c.Config)
//
// The zero Options but for a name are an API server and its etcd, which is all
// that a test of a controller needs; StartAll starts several at a time. The
// binaries come from "make controlplane". cmd/clusters is a command around this package.
//
// # What is real
//
// Everything but nodes and kubelets. TLS is verified, RBAC is on, anonymous
// requests are refused, service account tokens and their Secrets work, the
// scheduler binds the pods, and JobSet's webhooks are called. Each cluster has
// an authority of its own and listens on 127.0.0.1 only; etcd listens on Unix
// sockets in the cluster's directory.
//
// # Nodes and pods
//
// NodeShape describes nodes. kwok plays them, renews their leases and moves
// the pods on them along, as the stages in the directory stages say:
//
//	trainyard.dev/run-for: 3s         succeeds after this time (default 1s); "forever": runs until deleted
//	trainyard.dev/fail: OOM           fails instead, with this message and exit code 1
//	trainyard.dev/terminate-for: 2s   goes on for this long after it was deleted (default: not at all)
//	trainyard.dev/log: "one\ntwo"     what its containers have printed (default: nothing); change it, and they print
//
// A pod whose restart policy is Always runs forever by default. Containers are
// never restarted in place, also not with the policy OnFailure: such a pod is
// Failed. A run-for that is no duration leaves the pod Pending, and kwok's log says why.
//
// Logs are real but for their content: the API server asks a kubelet for them,
// one for all nodes, in this process. It verifies that kubelet's certificate
// as little as a cluster of kubeadm does. Only the last state of a container
// and the annotations of its pod count, so a test can play restarts in place
// by writing restartCount and the states; LogAnnotation says where the lines
// of each run are. A line's time is the start of its run and a millisecond for
// each line before it.
//
// Stopping kwok (Process("kwok").Signal(syscall.SIGSTOP)) makes all nodes
// unreachable for the node lifecycle controller after its grace period of
// 50 s; --node-monitor-grace-period in Options.ControllerManagerArgs shortens
// it. kwok renews the leases every ten seconds.
//
// # What to watch out for
//
//   - The garbage collector learns of new kinds every 30 s. Give CRDs to
//     Options.CRDs, which installs them before it starts.
//   - Without the controller manager two admission plugins are off:
//     ServiceAccount, as nobody makes the accounts, and TaintNodesByCondition,
//     as nobody removes the taints. Tests can then create pods and nodes by hand.
//   - API priority and fairness is off, for a quicker start.
//     Options.APIServerArgs can turn it on.
//   - The job controller batches for 100 ms instead of a second, and waits a
//     second instead of ten before it replaces a failed pod.
//   - Only the controllers in components.go run. There are no Deployments,
//     and no exec or port-forward of pods.
//   - etcd does not sync to disk: data survives a crash of any process, not of
//     the machine.
//   - A temporary directory goes with the cluster, and the logs with it.
//     TRAINYARD_KEEP=1 keeps it. When a part ends during a start, the error
//     has the end of its log.
//
// # The end of a cluster
//
// Stop ends it. It also ends with the process that started it, however that
// ends: on Linux each child asks the kernel for SIGKILL when we die, and
// everywhere the parts of the control plane end when the pipe that is their
// standard input does. Children are in process groups of their own, so that
// Ctrl-C leaves the order of the end to us.
//
// Ports are reserved, on Linux, by sockets that are bound and never listen:
// parallel test packages do not collide, and an API server that was killed
// finds its port again.
//
// # kind
//
// TRAINYARD_CLUSTERS=kind makes the clusters with kind, with whichever of
// Docker, Podman and nerdctl is there; TRAINYARD_KIND_IMAGE chooses the node
// image. The other processes still run on this machine. The limits:
//
//   - The API server cannot be killed or paused alone, and its arguments and
//     audit log cannot be set: those methods and options are errors.
//   - Webhook servers, so also JobSet, and logs of kwok's pods need TRAINYARD_KIND_HOST, the address of
//     this machine that the nodes reach. It must be an IPv4 address of one of
//     its interfaces, so this does not work with Docker Desktop.
//   - kind's own node takes pods too, and really runs their images. Nodes of
//     kwok are told from it by their resources.
//   - Clusters of kind survive a killed parent ("kind delete cluster"), and
//     their names are shared by all who use the engine.
//
// It compiles, but no machine of this project has an engine to run it on.
//
// # Locks
//
// Cluster.mu guards what runs beside the cluster and the ports of webhook
// servers; processes.mu guards the parts. Cluster.kwokMu is held over the
// start of kwok and its kubelet, so that concurrent calls of AddNodes start one.
package clusters
