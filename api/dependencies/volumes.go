// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// volume adds the references of a volume. The kubelet sets up only volumes that containers mount, so nothing asks for a
// Secret or ConfigMap of any other volume. Claims are different: the scheduler waits for each claim of the pod.
func (w *walk) volume(volume *corev1.Volume) {
	field := "volume " + volume.Name
	if claim := volume.PersistentVolumeClaim; claim != nil {
		w.add(PersistentVolumeClaim, claim.ClaimName, field, Required)
	}
	if secret := volume.Secret; secret != nil {
		w.keys(Object{Secret, secret.SecretName}, secret.Items, field, w.mountedNeed(volume, secret.Optional))
	}
	if config := volume.ConfigMap; config != nil {
		w.keys(Object{ConfigMap, config.Name}, config.Items, field, w.mountedNeed(volume, config.Optional))
	}
	if volume.Projected != nil {
		for i := range volume.Projected.Sources {
			w.projection(volume, &volume.Projected.Sources[i])
		}
	}
	if file := volume.AzureFile; file != nil {
		w.add(Secret, file.SecretName, field, w.mountedNeed(volume, nil))
	}
	if disk := volume.ISCSI; disk != nil && disk.SecretRef != nil {
		need := w.mountedNeed(volume, nil)
		if !disk.DiscoveryCHAPAuth && !disk.SessionCHAPAuth {
			need = Unused // The kubelet reads the Secret only for these.
		}
		w.add(Secret, disk.SecretRef.Name, field, need)
	}
	for _, secret := range driverSecrets(volume) {
		w.add(Secret, secret.Name, field, w.mountedNeed(volume, nil))
	}
}

// driverSecrets are the Secrets that the driver of a volume gets from the kubelet to mount it.
func driverSecrets(volume *corev1.Volume) (secrets []corev1.LocalObjectReference) {
	for _, secret := range []*corev1.LocalObjectReference{
		ptr.Deref(volume.CSI, corev1.CSIVolumeSource{}).NodePublishSecretRef,
		ptr.Deref(volume.FlexVolume, corev1.FlexVolumeSource{}).SecretRef,
		ptr.Deref(volume.Cinder, corev1.CinderVolumeSource{}).SecretRef,
		ptr.Deref(volume.CephFS, corev1.CephFSVolumeSource{}).SecretRef,
		ptr.Deref(volume.RBD, corev1.RBDVolumeSource{}).SecretRef,
		ptr.Deref(volume.ScaleIO, corev1.ScaleIOVolumeSource{}).SecretRef,
		ptr.Deref(volume.StorageOS, corev1.StorageOSVolumeSource{}).SecretRef,
	} {
		if secret != nil {
			secrets = append(secrets, *secret)
		}
	}
	return secrets
}

func (w *walk) projection(volume *corev1.Volume, source *corev1.VolumeProjection) {
	field := "volume " + volume.Name
	if secret := source.Secret; secret != nil {
		w.keys(Object{Secret, secret.Name}, secret.Items, field, w.mountedNeed(volume, secret.Optional))
	}
	if config := source.ConfigMap; config != nil {
		w.keys(Object{ConfigMap, config.Name}, config.Items, field, w.mountedNeed(volume, config.Optional))
	}
	if bundle := source.ClusterTrustBundle; bundle != nil {
		w.add(ClusterTrustBundle, ptr.Deref(bundle.Name, ""), field, w.mountedNeed(volume, bundle.Optional))
	}
}

// keys adds a reference to each key that a volume has as a file, or to the whole object if it has all of them.
func (w *walk) keys(object Object, items []corev1.KeyToPath, field string, need Need) {
	if len(items) == 0 {
		w.add(object.Kind, object.Name, field, need)
	}
	for _, item := range items {
		w.addKey(Reference{Object: object, Key: item.Key, Field: field, Need: need})
	}
}

func (w *walk) mountedNeed(volume *corev1.Volume, optional *bool) Need {
	if !w.mounted[volume.Name] {
		return Unused
	}
	return needOf(optional)
}
