// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// MaxSize is the largest size that may be kept of a log.
const MaxSize = 16 << 20

const (
	// maxIndex is how many bytes an index may have.
	maxIndex = 16 << 20
	// maxRead is how many indexes are read in the search for one pod.
	maxRead = 64
)

// ErrNotFound is the error of a Store that does not have an object.
var ErrNotFound = errors.New("there is no such object")

// Store is where objects are kept. A key has names that are separated by slashes.
type Store interface {
	// Put writes an object. Who reads it sees all of it, or nothing.
	Put(ctx context.Context, key string, data []byte) error
	// Get reads an object. It fails if the object has more bytes than limit, and with ErrNotFound if there is none.
	Get(ctx context.Context, key string, limit int64) ([]byte, error)
	// List returns the names that follow a key, sorted. There may be none.
	List(ctx context.Context, key string) ([]string, error)
}

// Archive keeps logs in a store. All methods may be called concurrently.
type Archive struct{ Store Store }

// Has says whether an attempt is kept already.
func (a *Archive) Has(ctx context.Context, attempt Attempt) (bool, error) {
	key, err := attempt.key()
	if err != nil {
		return false, err
	}
	names, err := a.Store.List(ctx, key)
	if err != nil {
		return false, fmt.Errorf("list %s in the log archive: %w", key, err)
	}
	return slices.Contains(names, indexName), nil
}

// Keep writes the end of a log. c says whose log it is.
func (a *Archive) Keep(ctx context.Context, attempt Attempt, pod string, c *Container, end []byte) error {
	key, err := attempt.logKey(pod, c)
	if err != nil {
		return err
	}
	if err := a.Store.Put(ctx, key, end); err != nil {
		return fmt.Errorf("write %s to the log archive: %w", key, err)
	}
	return nil
}

// WriteIndex writes the index of an attempt, after its logs.
func (a *Archive) WriteIndex(ctx context.Context, x *Index) error {
	key, err := x.key()
	if err != nil {
		return err
	}
	data, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("encode index: %w", err)
	}
	if err := a.Store.Put(ctx, key+"/"+indexName, data); err != nil {
		return fmt.Errorf("write %s/%s to the log archive: %w", key, indexName, err)
	}
	return nil
}

// Read reads the end of a log that an index names.
func (a *Archive) Read(ctx context.Context, attempt Attempt, pod string, c *Container) ([]byte, error) {
	key, err := attempt.logKey(pod, c)
	if err != nil {
		return nil, err
	}
	data, err := a.Store.Get(ctx, key, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read %s from the log archive: %w", key, err)
	}
	return data, nil
}

// Found is what the archive knows about a pod.
type Found struct {
	// Index and Pod are nil if no attempt has the pod.
	Index *Index
	Pod   *Pod
	// Others are the attempts that do not have the pod, the latest first.
	Others []*Index
}

// Find searches the jobs of a namespace for a pod. jobs are the names of jobs whose pod it could be.
func (a *Archive) Find(ctx context.Context, namespace string, uid types.UID, pod string, jobs []string) (*Found, error) {
	found := &Found{}
	err := a.each(ctx, namespace, uid, jobs, func(x *Index) (more bool) {
		if p := x.pod(pod); p != nil && x.Owns(pod) {
			found.Index, found.Pod = x, p
			return false
		}
		found.Others = append(found.Others, x)
		return true
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Of returns what is kept of the jobs of a name, the latest attempts first.
func (a *Archive) Of(ctx context.Context, namespace string, uid types.UID, job string) (all []*Index, err error) {
	err = a.each(ctx, namespace, uid, []string{job}, func(x *Index) bool {
		all = append(all, x)
		return true
	})
	return all, err
}

// each reads the indexes of jobs in a namespace with this UID, as long as visit wants more and maxRead allows.
func (a *Archive) each(ctx context.Context, namespace string, uid types.UID, jobs []string, visit func(*Index) (more bool)) error {
	left := maxRead
	for _, job := range jobs {
		attempts, err := a.attempts(ctx, namespace, job)
		if err != nil {
			return err
		}
		for _, attempt := range attempts {
			if left--; left < 0 {
				return nil
			}
			x, err := a.index(ctx, attempt)
			switch {
			case errors.Is(err, ErrNotFound): // It is being kept now, or was interrupted.
				continue
			case err != nil:
				return err
			case x.NamespaceUID == uid && !visit(x):
				return nil
			}
		}
	}
	return nil
}

// attempts returns the attempts of all jobs of a name, the highest number first.
func (a *Archive) attempts(ctx context.Context, namespace, job string) (found []Attempt, err error) {
	key, err := join(namespace, job)
	if err != nil {
		return nil, nil //nolint:nilerr // Nothing has this name.
	}
	uids, err := a.Store.List(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("list %s in the log archive: %w", key, err)
	}
	for _, uid := range uids {
		below, err := join(namespace, job, uid)
		if err != nil {
			continue // Somebody else has put it there.
		}
		numbers, err := a.Store.List(ctx, below)
		if err != nil {
			return nil, fmt.Errorf("list %s in the log archive: %w", below, err)
		}
		for _, text := range numbers {
			number, err := strconv.ParseInt(text, 10, 32)
			if err == nil && number > 0 && strconv.FormatInt(number, 10) == text {
				found = append(found, Attempt{Namespace: namespace, Job: job, UID: types.UID(uid), Number: int32(number)})
			}
		}
	}
	slices.SortStableFunc(found, func(x, y Attempt) int { return cmp.Compare(y.Number, x.Number) })
	return found, nil
}

func (a *Archive) index(ctx context.Context, attempt Attempt) (*Index, error) {
	key, err := attempt.key()
	if err != nil {
		return nil, err
	}
	data, err := a.Store.Get(ctx, key+"/"+indexName, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("read %s/%s from the log archive: %w", key, indexName, err)
	}
	x, err := parseIndex(data, attempt)
	if err != nil {
		return nil, fmt.Errorf("read %s/%s from the log archive: %w", key, indexName, err)
	}
	return x, nil
}
