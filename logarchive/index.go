// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Attempt names an attempt of a job of the hub.
type Attempt struct {
	Namespace string    `json:"namespace"`
	Job       string    `json:"job"`
	UID       types.UID `json:"uid"`
	Number    int32     `json:"attempt"`
}

// Index says what is kept of an attempt.
type Index struct {
	Attempt
	// NamespaceUID is the UID of the namespace on the hub.
	NamespaceUID types.UID `json:"namespaceUID"`
	// Worker is where the attempt was.
	Worker v1alpha1.ClusterName `json:"worker"`
	// Reason is why the attempt ended: an outcome of a Dispatch, or the reason of its eviction.
	Reason string `json:"reason"`
	// KeptAt is when the logs were read, by the hub's clock.
	KeptAt time.Time `json:"keptAt"`
	// Pods are the pods of the attempt that were there.
	Pods []Pod `json:"pods,omitempty"`
	// Missing says why not all pods are there, or none.
	Missing string `json:"missing,omitempty"`
}

// AnnotationDefaultContainer names the container of a pod whose log kubectl reads.
const AnnotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// Pod is a pod with its containers, init containers first.
type Pod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
	// Labels are those of JobSet and Jobs.
	Labels map[string]string `json:"labels,omitempty"`
	// DefaultContainer is the value of AnnotationDefaultContainer.
	DefaultContainer string `json:"defaultContainer,omitempty"`
	// Created, Node and Phase are of the time when the logs were read.
	Created    metav1.Time     `json:"created,omitzero"`
	Node       string          `json:"node,omitempty"`
	Phase      corev1.PodPhase `json:"phase,omitempty"`
	Containers []Container     `json:"containers,omitempty"`
}

// Container says what is kept of the log of a container.
type Container struct {
	Name string `json:"name"`
	// Init is true for init containers.
	Init bool `json:"init,omitempty"`
	// Previous is true for the log of the run before the last one.
	Previous bool `json:"previous,omitempty"`
	// Bytes is how much is kept.
	Bytes int64 `json:"bytes"`
	// Whole is true if that is all that the worker had of the log. Otherwise it is the end, from the start of a line on.
	Whole bool `json:"whole"`
	// Note says what else is to be known about the end of the log.
	Note string `json:"note,omitempty"`
	// Missing says why no log is kept.
	Missing string `json:"missing,omitempty"`
}

// Log returns what is kept of a container's log, nil if there is no such container.
func (p *Pod) Log(container string, previous bool) *Container {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Name == container && c.Previous == previous {
			return c
		}
	}
	return nil
}

// pod returns the pod of a name, nil if there is none.
func (x *Index) pod(name string) *Pod {
	for i := range x.Pods {
		if x.Pods[i].Name == name {
			return &x.Pods[i]
		}
	}
	return nil
}

const (
	indexName = "index.json"
	logSuffix = ".log"
	previous  = ".previous"
)

// key is where the attempt is.
func (a Attempt) key() (string, error) {
	if a.Number < 1 {
		return "", fmt.Errorf("%d is no number of an attempt", a.Number)
	}
	return join(a.Namespace, a.Job, string(a.UID), strconv.Itoa(int(a.Number)))
}

// logKey is where a log of the attempt is.
func (a Attempt) logKey(pod string, c *Container) (string, error) {
	if !a.Owns(pod) || len(validation.IsDNS1123Label(c.Name)) > 0 {
		return "", fmt.Errorf("pod %q and container %q are no names of a pod of TrainJob %q", pod, c.Name, a.Job)
	}
	key, err := a.key()
	if err != nil {
		return "", err
	}
	name := c.Name
	if c.Previous {
		name += previous
	}
	return key + "/" + pod + "/" + name + logSuffix, nil
}

// Owns says whether a pod can be one of the job: JobSet lets the names of pods begin with the name of the job. So no pod
// has the name of the index.
func (a Attempt) Owns(pod string) bool {
	return strings.HasPrefix(pod, a.Job+"-") && len(validation.IsDNS1123Subdomain(pod)) == 0
}

// join makes a key of names. All names of Kubernetes are good, and so are UIDs.
func join(names ...string) (string, error) {
	for _, name := range names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return "", fmt.Errorf("%q cannot be a part of a key", name)
		}
	}
	return strings.Join(names, "/"), nil
}

func parseIndex(data []byte, at Attempt) (*Index, error) {
	x := &Index{}
	if err := json.Unmarshal(data, x); err != nil {
		return nil, fmt.Errorf("decode index: %w", err)
	}
	if x.Attempt != at {
		return nil, fmt.Errorf("the index is of attempt %d of TrainJob %s/%s", x.Number, x.Namespace, x.Job)
	}
	return x, nil
}
