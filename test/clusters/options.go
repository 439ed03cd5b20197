// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Options says what cluster to start. Name is required. If all other fields are zero, the cluster is an API server and
// its etcd, without controllers.
type Options struct {
	// Name is the name of the cluster, a DNS label: "hub", "worker-1". It is the context in the kubeconfig.
	Name string
	// Dir is the directory for state, credentials, logs and the kubeconfig. Start creates it, and deletes what an earlier
	// cluster left in it. Empty: a temporary directory, which Stop deletes unless $TRAINYARD_KEEP is set.
	Dir string
	// BinDir is the directory of the binaries that hack/build-controlplane.sh builds. Empty: $TRAINYARD_BIN, or else bin/
	// at the top of the repository. $TRAINYARD_KUBERNETES, if it is set, has the control plane instead.
	BinDir string
	// Release is the Kubernetes release of the control plane, like "1.34". Empty: $TRAINYARD_RELEASE, or else DefaultRelease.
	// "hack/build-controlplane.sh 1.34" builds it. On kind the node image decides.
	Release string

	// ControllerManager runs kube-controller-manager: Jobs, garbage collection, namespaces, service accounts, lost nodes.
	ControllerManager bool
	// GarbageCollector runs kube-controller-manager with only its garbage collector, unless ControllerManager runs all of
	// it. Objects whose owner is gone are deleted, and nodes stay as they were created.
	GarbageCollector bool
	// Scheduler runs kube-scheduler.
	Scheduler bool
	// JobSet installs JobSet's CRD and webhooks and runs its manager. Jobs
	// of a JobSet need ControllerManager.
	JobSet bool
	// Nodes are created at the start, as by AddNodes.
	Nodes []NodeShape

	// CRDs are files or directories whose CustomResourceDefinitions are installed before the controllers start. Prefer
	// CRDs over InstallCRDs: the garbage collector needs up to 30 s to see later kinds.
	CRDs []string
	// OpenAPI makes the API server serve OpenAPI documents of Kubernetes' own kinds, too, not only of those of CRDs. kubectl
	// explain and Helm need them. Without them a start takes a third less CPU time and a quarter less memory.
	OpenAPI bool
	// Audit makes the API server log every request, see AuditLog.
	Audit bool
	// APIServerArgs are added to the API server's arguments, and override its own.
	APIServerArgs []string
	// ControllerManagerArgs do the same for kube-controller-manager.
	ControllerManagerArgs []string
	// SchedulerArgs do the same for kube-scheduler.
	SchedulerArgs []string
	// MemoryLimit is the GOMEMLIMIT of each part of the control plane. A part whose objects take more does little but
	// collect garbage. Empty: 512MiB, enough for 10,000 TrainJobs.
	MemoryLimit string

	// Kind is for clusters of kind.
	Kind KindOptions

	// firstCRDs are what CRDs, and JobSet, name.
	firstCRDs []*unstructured.Unstructured
	// blank makes etcd begin without data, see baseline.go.
	blank bool
}

// Full returns the options of a cluster that runs JobSets on the given nodes.
func Full(name string, nodes ...NodeShape) Options {
	return Options{Name: name, ControllerManager: true, Scheduler: true, JobSet: true, Nodes: nodes}
}

// NodeShape describes a number of equal nodes.
type NodeShape struct {
	// Count is the number of nodes.
	Count int
	// NamePrefix is followed by a dash and a number from 0. Default: "node". Shapes and calls may share a prefix: then the
	// numbers continue.
	NamePrefix string
	// Capacity is the nodes' capacity and allocatable. Resources that it lacks have defaults: 96 CPUs, 1 TiB of memory and
	// 110 pods.
	Capacity corev1.ResourceList
	Labels   map[string]string
	Taints   []corev1.Taint
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// complete checks the options and returns them with defaults and with
// absolute paths. removeDir says that Dir is a temporary one.
func (o Options) complete() (completed Options, removeDir bool, err error) {
	if !dnsLabel.MatchString(o.Name) {
		return o, false, fmt.Errorf("cluster name %q is not a DNS label", o.Name)
	}
	if o.JobSet && !o.ControllerManager {
		return o, false, fmt.Errorf("cluster %q: JobSet needs the controller manager, which runs its Jobs", o.Name)
	}
	if len(o.Nodes) > 0 && !o.ControllerManager {
		return o, false, fmt.Errorf("cluster %q: nodes need the controller manager, which makes them schedulable", o.Name)
	}
	o.Release = cmp.Or(o.Release, os.Getenv("TRAINYARD_RELEASE"), DefaultRelease)
	if o.BinDir == "" {
		if o.BinDir, err = defaultBinDir(); err != nil {
			return o, false, err
		}
	}
	if o.BinDir, err = filepath.Abs(o.BinDir); err != nil {
		return o, false, err
	}
	if removeDir = o.Dir == ""; removeDir {
		if o.Dir, err = os.MkdirTemp("", "trainyard-"+o.Name+"-"); err != nil {
			return o, false, err
		}
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, false, err
	}
	return o, removeDir && os.Getenv("TRAINYARD_KEEP") == "", nil
}

// defaultBinDir returns $TRAINYARD_BIN or the repository's bin directory.
func defaultBinDir() (string, error) {
	_ = os.Getenv("TRAINYARD_INPUTS") // So go test runs a test again when hack/inputs.sh prints another checksum.
	if dir := os.Getenv("TRAINYARD_BIN"); dir != "" {
		return dir, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", fmt.Errorf("find bin directory (TRAINYARD_BIN can name it): %w", err)
	}
	return filepath.Join(root, "bin"), nil
}

// binary returns the path of one of the binaries in dir.
func binary(dir, name string) (string, error) {
	return builtBy("make controlplane", filepath.Join(dir, name))
}

// builtBy returns the path of a program. If it is missing, the error names the command that builds it.
func builtBy(command, path string) (string, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s is missing: run %q (the first build takes minutes)", path, command)
	} else if err != nil {
		return "", err
	}
	return path, nil
}

// newBackend returns the backend that $TRAINYARD_CLUSTERS names.
func newBackend(o Options) (backend, error) {
	switch kind := os.Getenv("TRAINYARD_CLUSTERS"); kind {
	case "", "process":
		return asBackend(newProcesses(o))
	case "kind":
		return asBackend(newKindCluster(o))
	default:
		return nil, fmt.Errorf("TRAINYARD_CLUSTERS=%q: want process or kind", kind)
	}
}

// asBackend keeps a nil pointer from becoming an interface that is not nil.
func asBackend[B backend](b B, err error) (backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
