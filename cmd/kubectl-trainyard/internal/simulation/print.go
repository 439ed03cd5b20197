// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/explanation"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/jobs"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
)

// Print prints the decisions for people: a text about each job, and a table of the workers.
func (o *Outcome) Print(out io.Writer, table func(io.Writer, *metav1.Table) error, now time.Time) error {
	for i, result := range o.Results {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(out, printers.EscapeTerminal(result.headline())); err != nil {
			return err
		}
		if err := table(out, explanation.Workers(result.Dispatch, o.Clusters, now)); err != nil {
			return err
		}
	}
	return nil
}

func (r Result) headline() string {
	var b strings.Builder
	d := r.Dispatch
	if d.Spec.Cluster != "" {
		fmt.Fprintf(&b, "TrainJob %s/%s would run on worker %s\n", d.Namespace, d.Name, d.Spec.Cluster)
	} else {
		fmt.Fprintf(&b, "TrainJob %s/%s would wait (%s)\n", d.Namespace, d.Name, jobs.Reason(d))
	}
	if why := explanation.Message(d); why != "" {
		fmt.Fprintf(&b, "  Why:       %s\n", why)
	}
	if len(r.Equals) > 0 {
		names := make([]string, len(r.Equals))
		for i := range r.Equals {
			names[i] = string(r.Equals[i])
		}
		fmt.Fprintf(&b, "  Or:        %s; the scores are equal, and the UID decides that the job gets when it is created\n", strings.Join(names, ", "))
	}
	switch r.Before {
	case 0:
	case 1:
		b.WriteString("  Behind:    one waiting job, which comes before it and may take the room\n")
	default:
		fmt.Fprintf(&b, "  Behind:    %d waiting jobs, which come before it and may take the room\n", r.Before)
	}
	fmt.Fprintf(&b, "  Needs:     %s\n  Policy:    %s\n  Priority:  %d\n", jobs.Needs(d.Spec.PodSets), output.Or(r.Policy, output.None), d.Spec.Priority)
	return b.String()
}
