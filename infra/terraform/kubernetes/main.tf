# Managed Kubernetes on Nebius: two nodes of 8 H100, joined by InfiniBand, with 2 TiB that all share (StorageClass
# csi-mounted-fs-path-sc) and 1 TiB of network SSD on each.
#
# This only calls the provider's recipe, at one commit, with what we choose. Its variables and their types are those of
# that commit; to move to another, compare its variables.tf first.
terraform {
  required_version = ">= 1.12.0"

  backend "s3" {} # ../.envrc writes backend.hcl
}

module "kubernetes" {
  source = "git::https://github.com/nebius/nebius-solutions-library.git//k8s-training?ref=0ae155939f11b99b0452953849fe2bb69cd31ebe"

  tenant_id = var.tenant_id
  parent_id = var.project_id
  subnet_id = var.subnet_id
  region    = var.region
  iam_token = var.iam_token

  cluster_name   = var.name
  ssh_public_key = { key = var.ssh_public_key }

  cpu_nodes_fixed_count = var.cpu_nodes
  cpu_nodes_platform    = "cpu-d3"
  cpu_nodes_preset      = "16vcpu-64gb" # also stages models and prepares rows

  gpu_node_groups                 = 1
  gpu_nodes_fixed_count_per_group = var.nodes
  gpu_nodes_platform              = var.platform
  gpu_nodes_preset                = var.preset
  gpu_nodes_driverfull_image      = true
  gpu_disk_type                   = "NETWORK_SSD"
  gpu_disk_size                   = tostring(var.disk_gib) # the recipe's is a string
  infiniband_fabric               = var.infiniband_fabric

  enable_filestore               = true
  filestore_disk_type            = "NETWORK_SSD"
  filestore_disk_size_gibibytes  = var.shared_gib
  filestore_block_size_kibibytes = 4
  filestore_mount_path           = "/mnt/data"
  filestore_forbid_deletion      = var.keep_data

  kueue             = { enabled = var.kueue }
  loki              = { enabled = false }
  enable_grafana    = true
  enable_prometheus = false
}
