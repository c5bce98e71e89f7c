output "functions" {
  description = "Each function's URL. Only connect and unsubscribe answer everybody."
  value       = local.function_uris
}

output "public_url" {
  description = "MAILYARD_PUBLIC_URL for the links by which mailboxes are linked: what the app's backend and mailyard account link need."
  value       = local.public_urls["connect"]
}

output "oauth_redirect_uri" {
  description = "What the OAuth client has to allow as redirect URI."
  value       = "${local.public_urls["connect"]}/Connect"
}

output "kms_key" {
  description = "MAILYARD_KMS_KEY: the key that wraps the keyset."
  value       = "gcp-kms://${google_kms_crypto_key.keyset.id}"
}

output "delegation_client_id" {
  description = "What a Workspace domain's administrator authorizes for gmail.readonly; nothing where delegation is off."
  value       = one([for a in google_service_account.delegation : a.unique_id])
}

output "topics" {
  description = "The topic of each lane and of each other route."
  value       = { for key, r in local.routes : key => google_pubsub_topic.work[key].id }
}

output "mailbox_changes_topic" {
  description = "Where the app listens for what has been applied."
  value       = google_pubsub_topic.mailbox_changes.id
}

output "dead_letter_subscriptions" {
  description = "Where the dead letters of each route are kept for people."
  value       = { for key, s in google_pubsub_subscription.inspect : key => s.id }
}

output "dead_letter_links" {
  description = "The same in the Cloud Console: its tab Messages, button Pull, shows them."
  value = {
    for key, s in google_pubsub_subscription.inspect : key =>
    "https://console.cloud.google.com/cloudpubsub/subscription/detail/${s.name}?project=${var.project}&tab=messages"
  }
}

output "dashboard_link" {
  description = "The dashboard in the Cloud Console."
  value       = "https://console.cloud.google.com/monitoring/dashboards/builder/${element(reverse(split("/", google_monitoring_dashboard.mailyard.id)), 0)}?project=${var.project}"
}
