# Slurm on Kubernetes (Soperator) on Nebius: two nodes of 8 H100, joined by InfiniBand, with 2 TiB that all share and
# 1 TiB of network SSD on each.
#
# This only calls the provider's recipe, at one commit, with what we choose. Its variables and their types are those of
# that commit; to move to another, compare its terraform.tfvars first.
terraform {
  required_version = ">= 1.12.0" # the recipe's own

  backend "s3" {} # ../.envrc writes backend.hcl
}

module "soperator" {
  source = "git::https://github.com/nebius/nebius-solutions-library.git//soperator/installations/example?ref=00c54d0035c153692b9bc6f178f00bbff9e8f574"

  region             = var.region
  iam_tenant_id      = var.tenant_id
  iam_project_id     = var.project_id
  vpc_subnet_id      = var.subnet_id
  o11y_iam_tenant_id = var.tenant_id
  o11y_profile       = "" # none is needed while nothing is sent to the provider's telemetry

  company_name           = var.name
  production             = false # true asks for the URL of a merge request of the provider's
  public_o11y_enabled    = false
  k8s_version            = "1.36"
  node_group_version     = "75"
  slurm_operator_version = "4.1.11"

  # The root of all nodes: home directories, environments, images. What jobs read and write lies on /mnt/data.
  filesystem_jail = {
    spec = {
      type                 = "NETWORK_SSD"
      size_gibibytes       = var.root_gib
      block_size_kibibytes = 4
      forbid_deletion      = false
    }
  }
  filesystem_jail_submounts = [{
    name       = "data"
    mount_path = "/mnt/data"
    spec = {
      type                 = "NETWORK_SSD"
      size_gibibytes       = var.shared_gib
      block_size_kibibytes = 4
      forbid_deletion      = var.keep_data
    }
  }]
  filestore_controller_spool = {
    spec = {
      size_gibibytes       = 128
      block_size_kibibytes = 4
      forbid_deletion      = false
    }
  }

  slurm_nodeset_workers = [{
    name        = "worker"
    size        = var.nodes
    autoscaling = { enabled = false }
    resource = {
      platform = var.platform
      preset   = var.preset
    }
    boot_disk = {
      type                 = "NETWORK_SSD"
      size_gibibytes       = 512
      block_size_kibibytes = 4
    }
    gpu_cluster = { infiniband_fabric = var.infiniband_fabric }
    node_local_jail_submounts = [{
      name            = "scratch"
      mount_path      = "/scratch"
      size_gibibytes  = var.scratch_gib
      disk_type       = "NETWORK_SSD"
      filesystem_type = "ext4"
    }]
    node_local_image_disk = { enabled = false } # for Docker on the nodes; enroot needs none
  }]
  use_preinstalled_gpu_drivers       = true
  slurm_shared_memory_size_gibibytes = 256

  slurm_nodeset_login = {
    size = 1
    resource = {
      platform = "cpu-d3"
      preset   = "16vcpu-64gb" # also stages models and prepares rows
    }
    boot_disk = {
      type                 = "NETWORK_SSD"
      size_gibibytes       = 256
      block_size_kibibytes = 4
    }
  }
  slurm_login_ssh_root_public_keys = var.ssh_public_keys

  slurm_nodesets_partitions = [
    {
      name               = "main"
      is_all             = true
      slurm_nodeset_refs = []
      topology           = "tree-ib"
      config             = "Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP OverSubscribe=YES"
    },
    { # the recipe's own checks run here, and it must not be removed
      name               = "hidden"
      is_all             = true
      slurm_nodeset_refs = []
      topology           = "flat"
      config             = "Default=NO PriorityTier=10 PreemptMode=OFF Hidden=YES MaxTime=INFINITE State=UP OverSubscribe=YES"
    },
  ]
  active_checks_scope = var.active_checks_scope
  accounting_enabled  = false

  backups_enabled           = "force_disable"
  backups_password          = "" # of backups that are not made
  backups_schedule          = "@daily-random"
  backups_prune_schedule    = "@daily-random"
  backups_retention         = { keepDaily = 7 }
  cleanup_bucket_on_destroy = false
}
