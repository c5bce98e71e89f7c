# The secrets, and the key that wraps the keyset. Their values are write-only: neither state nor plan
# holds them.

locals {
  # By the variable of the environment that a function has it in, without MAILYARD_: its version.
  secrets = { for name, n in var.secret_versions : name => n if n > 0 }

  # Without a keyset every stored credential is lost, and without its key the keyset is: terraform destroy
  # leaves both where they are.
  kept = toset(["keyset"])
}

# Google never deletes a key ring.
resource "google_kms_key_ring" "mailyard" {
  project  = local.project_with["cloudkms"]
  location = var.region
  name     = "mailyard"
}

resource "google_kms_crypto_key" "keyset" {
  key_ring        = google_kms_key_ring.mailyard.id
  name            = "keyset"
  rotation_period = "${90 * 24 * 60 * 60}s"
  deletion_policy = "ABANDON"
}

resource "google_secret_manager_secret" "secret" {
  for_each = local.secrets

  project         = local.project_with["secretmanager"]
  secret_id       = "mailyard-${replace(each.key, "_", "-")}"
  deletion_policy = contains(local.kept, each.key) ? "ABANDON" : "DELETE"

  replication {
    auto {}
  }
}

resource "google_secret_manager_secret_version" "secret" {
  for_each = local.secrets

  secret                 = google_secret_manager_secret.secret[each.key].id
  secret_data_wo_version = each.value
  deletion_policy        = contains(local.kept, each.key) ? "ABANDON" : "DELETE"

  # Looked at only when the version is new. A connect key that nobody gave is made at random here, twice 122
  # bits, and is nowhere but in Secret Manager; that there is a keyset is seen to below.
  secret_data_wo = {
    oauth_client_secret = trimspace(var.oauth_client_secret)
    connect_key         = coalesce(var.connect_key, "${uuid()}${uuid()}")
    keyset              = trimspace(coalesce(var.keyset, "none was given"))
    alert_webhook       = var.alert_webhook
  }[each.key]

  lifecycle {
    create_before_destroy = true # functions start with the old one until they are deployed with the new
  }
}

# The first apply needs a keyset, and later ones do not: that it was given, and written, is remembered.
resource "terraform_data" "keyset_given" {
  input            = var.keyset != null
  triggers_replace = var.secret_versions.keyset

  depends_on = [google_secret_manager_secret_version.secret]

  lifecycle {
    ignore_changes = [input]

    postcondition {
      condition     = self.input # known when it is planned, so that nothing is made without
      error_message = "There is no keyset yet: run make deploy, which makes one, or write into keyset what go run ./scripts/mailyard keyset new prints."
    }
  }
}
