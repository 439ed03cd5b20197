// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	managerUser = "system:serviceaccount:trainyard-system:trainyard-manager"
	hubUser     = "system:serviceaccount:trainyard-system:trainyard-hub"
)

// requests are the completed requests of a user in the audit log of a cluster, from an offset on, and the offset of its
// end.
func requests(t *testing.T, cluster *clusters.Cluster, user string, from int64) (events []auditv1.Event, end int64) {
	t.Helper()
	file, err := os.Open(cluster.AuditLog())
	check.Must(t, err)
	defer file.Close()
	if _, err := file.Seek(from, 0); err != nil {
		t.Fatal(err)
	}
	end = from
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil { // The end, perhaps in the middle of a line.
			return events, end
		}
		end += int64(len(line))
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("read audit log: %v", err)
		}
		if event.Stage == auditv1.StageResponseComplete && event.User.Username == user && event.ObjectRef != nil {
			events = append(events, event)
		}
	}
}

// describe is a request in short.
func describe(event auditv1.Event) string {
	ref := event.ObjectRef
	return fmt.Sprintf("%s %s/%s %s/%s", event.Verb, ref.Resource, ref.Subresource, ref.Namespace, ref.Name)
}

// counter reads apiserver_request_total of a cluster, by "VERB resource/subresource", of requests that succeeded.
func counter(t *testing.T, cluster *clusters.Cluster) map[string]int {
	t.Helper()
	text, err := cluster.Metrics(t.Context())
	check.Must(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	check.Must(t, err)
	counts := map[string]int{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		label := func(name string) string {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == name {
					return pair.GetValue()
				}
			}
			return ""
		}
		if strings.HasPrefix(label("code"), "2") {
			counts[label("verb")+" "+label("resource")+"/"+label("subresource")] += int(value(metric))
		}
	}
	return counts
}

func value(metric *dto.Metric) float64 { return metric.GetCounter().GetValue() }
