// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Some toxics log on their own, whatever logger their proxy has.
func init() { zerolog.SetGlobalLevel(zerolog.Disabled) }

// distant puts a toxiproxy before a worker, and returns its URL. It stops with the fleet.
func (f *Fleet) distant(worker *Cluster, rtt time.Duration) (string, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, worker.Name, "127.0.0.1:0", strings.TrimPrefix(worker.URL, "https://"))
	if err := proxy.Start(); err != nil {
		return "", fmt.Errorf("put worker %q at a distance: %w", worker.Name, err)
	}
	f.set.Cleanup(func() error { proxy.Stop(); return nil })
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"type": "latency", "stream": %q, "attributes": {"latency": %d}}`, stream, (rtt / 2).Milliseconds())
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return "", fmt.Errorf("put worker %q at a distance: %w", worker.Name, err)
		}
	}
	return "https://" + proxy.Listen, nil
}
