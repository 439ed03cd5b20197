// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/capacity"
)

// State is how it is with one worker.
type State int

// The states. But for Closed, their names are the reasons of a WorkerCluster's Ready condition.
const (
	// Connecting: the first connection is being made, the worker waits to be pinned, or its caches cannot be filled or kept up to
	// date although it lives. The message says which.
	Connecting State = iota
	// Connected: the worker answers, is the one that is pinned, has the APIs, and its caches are filled.
	Connected
	// Unreachable: the worker does not answer.
	Unreachable
	// CredentialsInvalid: the worker answers 401, or 403 to a request that is needed. It says nothing about the jobs there.
	CredentialsInvalid
	// IdentityChanged: the credentials lead to another cluster than the pinned one.
	IdentityChanged
	// TrainJobAPIMissing: the worker does not serve TrainJobs.
	TrainJobAPIMissing
	// JobSetAPIMissing: the worker does not serve JobSets.
	JobSetAPIMissing
	// Closed: the worker was removed from the fleet. It is the last state.
	Closed

	stateCount
)

var stateNames = [stateCount]string{
	"Connecting", "Connected", "Unreachable", "CredentialsInvalid", "IdentityChanged", "TrainJobAPIMissing", "JobSetAPIMissing", "Closed",
}

// String is the name of the state.
func (s State) String() string {
	if s < 0 || s >= stateCount {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// Trainer is a worker's TrainJob API.
type Trainer struct {
	// Version that is served and used. Empty: not known yet.
	Version string
	// Fields of a TrainJob's spec, sorted. Empty: the worker does not say.
	Fields []string
}

// Status is what is known of a worker. It is a value: nobody changes its parts.
type Status struct {
	State State
	// Message says what an admin should know or do, stable while the cause is the same.
	Message string
	// Capacity says whether the inventory can be believed, and CapacityMessage what an admin should know or do about it. They count
	// while State is Connected.
	Capacity        capacity.State
	CapacityMessage string
	// Since is when the state began: for Unreachable the first failure.
	Since time.Time
	// SilentSince is, while State is Unreachable, since when nothing at all has answered at the address: no connection could be made, and
	// nobody has said so. Zero: something has answered since contact was lost (it refuses, resets, takes connections and is silent, speaks
	// something else), or the way there is not known (DNS, a proxy), or no connection has been tried yet.
	SilentSince time.Time
	// Untried is true while State is Unreachable and no connection has been tried yet since contact was lost, so that it is not known
	// whether anything answers. It becomes false within a probe.
	Untried bool
	// LeaseRefusal is the HTTP code with which the worker refuses to show its ExecutionLease: 404 without the CRD, 403 without the right.
	// 0: it does not, as far as is known.
	LeaseRefusal int
	// LastSeen is when the worker last answered as itself. All but State, Message, SilentSince and Untried is of that time.
	LastSeen time.Time
	// ClusterID is the UID of the kube-system namespace that answered last. In IdentityChanged it is not the pinned one.
	ClusterID types.UID
	// KubernetesVersion of the API server, such as v1.36.3.
	KubernetesVersion string
	Trainer           Trainer
	// Fingerprint of the credentials in use.
	Fingerprint string
}

// same says whether there is nothing to tell subscribers.
func (s Status) same(other Status) bool {
	if len(s.Trainer.Fields) != len(other.Trainer.Fields) {
		return false
	}
	for i := range s.Trainer.Fields {
		if s.Trainer.Fields[i] != other.Trainer.Fields[i] {
			return false
		}
	}
	return s.State == other.State && s.SilentSince.Equal(other.SilentSince) && s.Untried == other.Untried && s.LeaseRefusal == other.LeaseRefusal &&
		s.Capacity == other.Capacity && s.CapacityMessage == other.CapacityMessage &&
		s.Message == other.Message && s.Since.Equal(other.Since) && s.ClusterID == other.ClusterID &&
		s.KubernetesVersion == other.KubernetesVersion && s.Trainer.Version == other.Trainer.Version && s.Fingerprint == other.Fingerprint
}

// ErrNotConnected is the error of a request to a worker that is not Connected. Do not retry: subscribe.
var ErrNotConnected = errors.New("worker is not connected")

// ErrNotListed is the error of reading an optional kind (JobSets, CapacityReports, ExecutionLeases) that the worker has not listed yet,
// or does not let us list.
var ErrNotListed = errors.New("the worker has not listed this kind")

// ErrNotLeading is the error of a write by a process that does not certainly lead. Nothing was sent.
var ErrNotLeading = errors.New("this process may not lead any more, so it writes nothing")

// IsNotConnected says whether err is, or was caused by, ErrNotConnected.
func IsNotConnected(err error) bool { return errors.Is(err, ErrNotConnected) }
