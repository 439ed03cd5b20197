// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
)

// KeyValue is an object as etcd has it. Custom resources are JSON there, with their key at
// /registry/GROUP/RESOURCES/NAMESPACE/NAME.
type KeyValue struct {
	Key   string
	Value []byte
}

// keysOfTransaction is how many keys WriteKeys writes at once. etcd takes 128, and 1.5 MB.
const keysOfTransaction = 64

// Keys returns what etcd has below a prefix.
func (c *Cluster) Keys(ctx context.Context, prefix string) ([]KeyValue, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	answer, err := c.askEtcd(ctx, "/v3/kv/range", map[string]any{"key": []byte(prefix), "range_end": end})
	if err != nil {
		return nil, fmt.Errorf("read %s from the etcd of cluster %q: %w", prefix, c.Name, err)
	}
	var list struct {
		KVs []struct{ Key, Value []byte }
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, err
	}
	var all []KeyValue
	for _, kv := range list.KVs {
		all = append(all, KeyValue{string(kv.Key), kv.Value})
	}
	return all, nil
}

// WriteKeys writes to etcd what the API server then serves. Nothing is checked, and no webhook hears of it.
func (c *Cluster) WriteKeys(ctx context.Context, all []KeyValue) error {
	for some := range slices.Chunk(all, keysOfTransaction) {
		var puts []any
		for _, kv := range some {
			puts = append(puts, map[string]any{"request_put": map[string][]byte{"key": []byte(kv.Key), "value": kv.Value}})
		}
		if _, err := c.askEtcd(ctx, "/v3/kv/txn", map[string]any{"success": puts}); err != nil {
			return fmt.Errorf("write %s and others to the etcd of cluster %q: %w", some[0].Key, c.Name, err)
		}
	}
	return nil
}

// deleteKey deletes a key from etcd. It fails if there is no such key.
func (c *Cluster) deleteKey(ctx context.Context, key string) error {
	answer, err := c.askEtcd(ctx, "/v3/kv/deleterange", map[string][]byte{"key": []byte(key)})
	if err != nil {
		return fmt.Errorf("delete %s from etcd: %w", key, err)
	}
	if !bytes.Contains(answer, []byte(`"deleted":"1"`)) {
		return fmt.Errorf("delete %s from etcd: it answers %s", key, answer)
	}
	return nil
}

// EtcdMetrics returns etcd's metrics in the text format of Prometheus. The API server's metrics do not have all of
// them.
func (c *Cluster) EtcdMetrics(ctx context.Context) ([]byte, error) {
	metrics, err := c.requestEtcd(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the etcd of cluster %q: %w", c.Name, err)
	}
	return metrics, nil
}

// askEtcd sends a request to etcd's JSON API, and returns the body of the answer.
func (c *Cluster) askEtcd(ctx context.Context, path string, request any) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return c.requestEtcd(ctx, http.MethodPost, path, body)
}

func (c *Cluster) requestEtcd(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	local, err := c.local()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(local.options.Dir, etcdSocketFile)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://etcd"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(response.Status + " " + string(answer)))
	}
	return answer, err
}
