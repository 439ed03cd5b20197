// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
)

// readAuthorityEvery is how often the file of the authority is read. An authority may change without the certificate: a
// file with the old and the next one is put there before the next certificate. A kubelet needs a minute too.
const readAuthorityEvery = time.Minute

// maxPublicationWait is how long to wait at most after an error: a right may be missing for good.
const maxPublicationWait = 10 * time.Minute

// publication is what users need to reach the gateway: its address, and the authority that they trust. Each replica writes
// it into the ConfigMap when it starts and when its authority changes, and not when somebody else has changed the
// ConfigMap: replicas with different flags, as in a rolling update, would undo each other's writes.
type publication struct {
	hub client.Client
	// key is that of the ConfigMap.
	key types.NamespacedName
	url string
	// authority is a file. It need not exist.
	authority string
	// every is how often the file is read.
	every time.Duration
	log   logr.Logger
}

// run publishes until ctx ends. It looks at the authority after each value of renewed too.
func (p *publication) run(ctx context.Context, renewed <-chan struct{}) {
	var published map[string]string
	again := serveAgainAfter
	for {
		wait := p.every
		data, err := p.data()
		if err == nil && !maps.Equal(data, published) {
			err = p.write(ctx, data)
		}
		switch {
		case err == nil:
			published, again = data, serveAgainAfter
		case ctx.Err() == nil:
			p.log.Error(err, "The gateway's address is not published", "configMap", p.key.String())
			wait, again = again, min(2*again, maxPublicationWait)
		}
		select {
		case <-ctx.Done():
			return
		case <-renewed:
		case <-time.After(wait):
		}
	}
}

// data is what the ConfigMap should have. It is never nil.
func (p *publication) data() (map[string]string, error) {
	data := map[string]string{"url": p.url}
	authority, err := os.ReadFile(p.authority)
	if errors.Is(err, fs.ErrNotExist) {
		return data, nil // Users trust the authority already.
	}
	if err != nil {
		return nil, fmt.Errorf("read the authority of the gateway's certificate: %w", err)
	}
	data[webhookserver.AuthorityKey] = string(authority)
	return data, nil
}

// write writes the ConfigMap, if there is one that has something else.
func (p *publication) write(ctx context.Context, data map[string]string) error {
	var object corev1.ConfigMap
	if err := p.hub.Get(ctx, p.key, &object); apierrors.IsNotFound(err) {
		p.log.Info("The gateway's address is not published, because there is no such ConfigMap", "configMap", p.key.String())
		return nil
	} else if err != nil {
		return fmt.Errorf("get ConfigMap %s: %w", p.key, err)
	}
	if maps.Equal(object.Data, data) {
		return nil
	}
	before := object.DeepCopy()
	object.Data = data
	if err := p.hub.Patch(ctx, &object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", p.key, err)
	}
	p.log.Info("Published the gateway's address and authority", "configMap", p.key.String())
	return nil
}
