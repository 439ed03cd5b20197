// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The components run in the cluster's directory, so paths are relative to it.
// A Unix socket's path may have 108 bytes; a temporary directory's may be
// longer. etcd insists on a port; here it is a part of the socket's name.
const (
	etcdSocketFile      = "etcd.sock:1"
	etcdSocket          = "unix://" + etcdSocketFile
	etcdPeerSocket      = "unix://etcd-peer.sock:1"
	schedulerConfigFile = "scheduler.yaml"
	auditPolicyFile     = "audit-policy.yaml"
	auditLogFile        = "audit.log"
)

// auditPolicy logs each request once, when it has been answered, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`

// schedulerConfig retries pods after a second, and at most two, where the
// default goes up to ten.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: kube-scheduler.kubeconfig
  qps: 1000
  burst: 2000
leaderElection:
  leaderElect: false
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
`

// controllers are the controllers that Jobs, JobSets and lost nodes need, and that make namespaces and service accounts
// work as on any cluster.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"resourceclaim-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"taint-eviction-controller",
	"ttl-after-finished-controller",
}

// lessGarbageCollection trades memory for CPU time: a part lives for minutes, and its start makes much garbage. Near
// the limit garbage is collected as often as necessary.
func lessGarbageCollection(o Options) []string {
	return []string{"GOGC=400", "GOMEMLIMIT=" + cmp.Or(o.MemoryLimit, "512MiB")}
}

func componentKubeconfig(part string) string { return part + ".kubeconfig" }

func etcdArgs() []string {
	return []string{
		"--name=etcd",
		"--data-dir=" + etcdDir,
		"--listen-client-urls=" + etcdSocket,
		"--advertise-client-urls=" + etcdSocket,
		"--listen-peer-urls=" + etcdPeerSocket,
		"--initial-advertise-peer-urls=" + etcdPeerSocket,
		"--initial-cluster=etcd=" + etcdPeerSocket,
		"--unsafe-no-fsync", // survives a crash of etcd, not of the machine
		"--log-level=warn",
	}
}

func apiServerArgs(o Options, port int) []string {
	args := []string{
		"--etcd-servers=" + etcdSocket,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=pki/apiserver.crt",
		"--tls-private-key-file=pki/apiserver.key",
		"--cert-dir=pki",
		"--client-ca-file=pki/ca.crt",
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=pki/sa.key",
		"--service-account-key-file=pki/sa.key",
		"--service-cluster-ip-range=10.0.0.0/16",
		"--allow-privileged",
		"--kubelet-preferred-address-types=InternalIP",
		"--endpoint-reconciler-type=none", // nothing runs in pods that could use it
		// Its forty bootstrap objects make the start slower. The limits below replace it.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1000",
		"--profiling=false",
	}
	if !o.ControllerManager {
		// ServiceAccount waits for accounts that nobody makes, and
		// TaintNodesByCondition taints nodes that nobody untaints.
		args = append(args, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	if o.Audit {
		args = append(args, "--audit-policy-file="+auditPolicyFile, "--audit-log-path="+auditLogFile, "--audit-log-mode=blocking")
	}
	return append(args, o.APIServerArgs...)
}

func controllerManagerArgs(o Options) []string {
	controllers := controllers
	if !o.ControllerManager {
		controllers = []string{"garbage-collector-controller"}
	}
	return append([]string{
		"--kubeconfig=" + componentKubeconfig("kube-controller-manager"),
		"--controllers=" + strings.Join(controllers, ","),
		"--service-account-private-key-file=pki/sa.key",
		"--root-ca-file=pki/ca.crt",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--concurrent-job-syncs=10",
		"--node-monitor-period=2s",
	}, o.ControllerManagerArgs...)
}

func schedulerArgs(o Options) []string {
	return append([]string{"--config=" + schedulerConfigFile, "--secure-port=0"}, o.SchedulerArgs...)
}

// writeFile writes a file that only its owner can read, and the directories above it.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

const etcdDir = "etcd"

// KillEtcd ends etcd with SIGKILL. The API server keeps running without etcd.
func (c *Cluster) KillEtcd() error {
	local, err := c.local()
	if err != nil {
		return err
	}
	return local.killPart("etcd")
}

// StartEtcd starts a killed etcd again with its data, and waits until the API server is ready.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	local, err := c.local()
	if err != nil {
		return err
	}
	if err := local.startEtcd(ctx); err != nil {
		return err
	}
	return c.waitServing(ctx)
}

// BackUp copies etcd's present data into a new directory. A crash of etcd at this moment would leave the same data.
func (c *Cluster) BackUp(dir string) (err error) {
	local, err := c.local()
	if err != nil {
		return err
	}
	etcd := lastNamed(local.parts(), "etcd")
	if etcd == nil {
		return fmt.Errorf("back up cluster %q: etcd does not run", c.Name)
	}
	if err := etcd.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Signal(syscall.SIGCONT)) }()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(c.Dir, etcdDir))); err != nil {
		return fmt.Errorf("back up cluster %q: %w", c.Name, err)
	}
	return nil
}

// Restore replaces the cluster's data by a copy from BackUp, and restarts the control plane, as an admin does.
// Processes beside the cluster, such as JobSet's manager, keep running with what they know.
func (c *Cluster) Restore(ctx context.Context, dir string) error {
	local, err := c.local()
	if err != nil {
		return err
	}
	if err := local.restore(ctx, dir); err != nil {
		return fmt.Errorf("restore cluster %q: %w", c.Name, err)
	}
	if err := c.waitServing(ctx); err != nil {
		return err
	}
	return local.startControllers()
}

// local is the cluster's control plane where that is made of processes.
func (c *Cluster) local() (*processes, error) {
	local, ok := c.backend.(*processes)
	if !ok {
		return nil, fmt.Errorf("the etcd of cluster %q is not a process of ours; use TRAINYARD_CLUSTERS=process", c.Name)
	}
	return local, nil
}

// restore returns when etcd and the API server have been started.
func (p *processes) restore(ctx context.Context, dir string) error {
	for _, part := range []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		if lastNamed(p.parts(), part) == nil {
			continue
		}
		if err := p.killPart(part); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(p.options.Dir, etcdDir)); err != nil {
		return err
	}
	if err := p.copyData(dir); err != nil {
		return err
	}
	if err := p.startEtcd(ctx); err != nil {
		return err
	}
	return p.startAPIServer(ctx)
}

// copyData copies a directory with data of etcd's to where the cluster's etcd has its data.
func (p *processes) copyData(from string) error {
	data := filepath.Join(p.options.Dir, etcdDir)
	if err := os.CopyFS(data, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(data, 0o700) // etcd insists on a directory that nobody else can read.
}
