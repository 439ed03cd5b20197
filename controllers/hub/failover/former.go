// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// formerAnswer is the message of releases before v1alpha1.ReasonAddressAnswers. Those releases wrote an answer with
// ReasonHold, which had several causes, so only the message tells which cause it was. This text is a record of the
// past: never change it, and never write it. It can be removed when no hub upgrades from such a release any more.
const formerAnswer = "worker %q does not answer as it should, but something at its address does: its API server may " +
	"be down, without which its agent cannot stop the job, so the job stays until the worker answers again; if nothing " +
	"of it runs any more, an admin can have its jobs placed anew: kubectl trainyard forget %s"

// isFormerAnswer is true if an earlier release has written the condition because something at the worker's address
// answered. The next decision then writes ReasonAddressAnswers.
func isFormerAnswer(said *metav1.Condition, worker v1alpha1.ClusterName) bool {
	return said.Reason == v1alpha1.ReasonHold && said.Message == fmt.Sprintf(formerAnswer, worker, worker)
}
